"""Nodes come and go, and what is on them goes elsewhere.

A drained node gives its workers notice, so that their members can leave the training first. One
that its job cannot do without leaves for good, and another one comes before it has gone. Launchers
are killed instead: a launcher that is asked to end would end the training with it, and one that is
killed is started again and takes the run up. A lost node gives nothing: what was on it counts as
gone at once, and is killed if it is seen after all. A job of fixed size cannot move in parts, so
all of it starts anew.
"""

from collections.abc import Iterator
from dataclasses import replace

from midflight.controller import roster
from midflight.controller.draft import Draft
from midflight.controller.instance_end import Fate, ended
from midflight.controller.instance_start import add_workers
from midflight.controller.instance_stop import stop
from midflight.controller.job_end import restart_all
from midflight.controller.state import ON_NODE, Instance, Job, Node, NodeStage, Role

NOTICE = 30.0  # between the notice to a drained worker and its end


def nodes_changed(draft: Draft, nodes: tuple[Node, ...]) -> None:
    stages = {name: node.stage for name, node in draft.nodes.items()}
    gone = [name for name in draft.nodes if name not in {node.name for node in nodes}]
    new = {node.name: replace(node, stage=stages.get(node.name, node.stage)) for node in nodes}
    draft.set_nodes(new)
    for name in gone:
        _lose_instances(draft, name)


def mark(draft: Draft, name: str, stage: NodeStage, word: str, text: str) -> bool:
    """Whether there is such a node."""
    if (node := draft.nodes.get(name)) is None:
        return False
    draft.set_nodes({**draft.nodes, name: replace(node, stage=stage)})
    draft.record("", f"node/{name}", word, text)
    return True


def cordon(draft: Draft, name: str) -> None:
    mark(draft, name, NodeStage.CORDONED, "Cordoned", "nothing new is placed here")


def give_back(draft: Draft, name: str) -> None:
    mark(draft, name, NodeStage.READY, "Returned", "the node can be used again")


def drain(draft: Draft, name: str) -> None:
    if not mark(draft, name, NodeStage.CORDONED, "Drained", "its instances move to other nodes"):
        return
    for job, instance in _on(draft, name):
        if not roster.is_elastic(job.spec) and not job.finished and not job.deleting:
            restart_all(draft, job.key, f"node {name} is drained")
        else:
            missed = _is_missed(job, instance)
            is_chief = instance.name == roster.chief_name(job.spec)
            grace = 0.0 if is_chief else NOTICE
            stop(draft, job.key, instance.name, grace, f"node {name} is drained")
            if missed:
                draft.set_instance(job.key, instance.name, leaving=True)
                add_workers(draft, job.key, 1)
        draft.touch([job.key])


def _is_missed(job: Job, instance: Instance) -> bool:
    """Whether the others are too few to go on without it until it is up again elsewhere.

    One that an operation has its eyes on keeps its name, so that the operation finds it.
    """
    up = [i.name for i in roster.counted(job) if i.stage in roster.UP and not i.leaving]
    if job.finished or job.deleting or instance.role is not Role.WORKER:
        return False
    if any(instance.name in operation.workers for operation in roster.open_operations(job)):
        return False
    return instance.name in up and len(up) <= job.spec.least


def lose(draft: Draft, name: str) -> None:
    if mark(draft, name, NodeStage.LOST, "NodeLost", "the node is lost"):
        _lose_instances(draft, name)


def _lose_instances(draft: Draft, name: str) -> None:
    for job, instance in _on(draft, name):
        if instance.stage in ON_NODE:
            reason = f"lost with node {name}"
            draft.warn(job.key, f"instance/{instance.name}", "NodeLost", reason)
            ended(draft, job.key, instance, Fate.LOST, None, reason)
        draft.touch([job.key])


def _on(draft: Draft, node: str) -> Iterator[tuple[Job, Instance]]:
    """What is there as it is when its turn comes, oldest job first; places kept there are lost."""
    for job in draft.by_age(list(draft.active)):
        for instance in roster.in_order(job):
            now = draft.jobs[job.key].instances.get(instance.name)
            if now is None or now.node != node:
                continue
            if now.stage in ON_NODE:
                yield draft.jobs[job.key], now
            elif roster.holds(now):
                draft.set_instance(job.key, now.name, node="", devices=())
