"""`handle(cluster, event, ...) -> (cluster, records)`: the controller's whole judgement.

One small function per event takes in what happened; `reconcile_all` then does what is due. Events
about jobs, instances or attempts that are no more are stale, and change nothing. What has to be
done about the new state is for `orders.py` to say.
"""

from midflight.controller import events, job_end, nodes, operations, roster
from midflight.controller.commands import Record
from midflight.controller.deadlines import deadlines_of
from midflight.controller.draft import Draft
from midflight.controller.instance_end import Fate, described, ended, fate_of
from midflight.controller.reconcile import reconcile_all
from midflight.controller.scale_rules import SCALEOUT
from midflight.controller.state import (
    ON_NODE,
    Cluster,
    Code,
    Instance,
    Job,
    Operation,
    Phase,
    Stage,
)
from midflight.python310 import assert_never


def handle(cluster: Cluster, *told: events.Event) -> tuple[Cluster, tuple[Record, ...]]:
    """`told`: one event, or several of the same moment, after which what is due is done once."""
    draft = Draft(cluster, told[0].at)
    for event in told:
        _take_in(draft, event)
    reconcile_all(draft)
    return draft.close()


def _take_in(draft: Draft, event: events.Event) -> None:
    match event:
        case events.ServerStarted():
            draft.touch(draft.active)
        case events.TimePassed():
            _note_deadlines(draft)
        case events.JobSubmitted():
            _submitted(draft, event)
        case _ if isinstance(event, events.InstanceEvent):
            _about_instance(draft, event)
        case _ if isinstance(event, events.NodeEvent):
            _about_nodes(draft, event)
        case _:
            if event.key in draft.jobs:
                _about_job(draft, event)
                draft.touch([event.key])


def _about_job(draft: Draft, event: events.JobEvent) -> None:
    match event:
        case events.JobDeleted():
            job_end.delete(draft, event.key)
        case events.JobHeld():
            job_end.hold(draft, event.key, event.holder)
        case events.JobReleased():
            job_end.release(draft, event.key)
        case events.ScaleAsked():
            _scale_asked(draft, event)
        case events.CodeFetched():
            _code_fetched(draft, event)
        case events.CodeNotFetched():
            _code_not_fetched(draft, event)
        case events.ResizeEnded():
            operations.answered(draft, event.key, event.operation, event.ok, event.detail)
        case events.ResizeProgressed():
            operations.progressed(draft, event.key, event.operation, event.detail)
        case events.InstanceNoted():
            draft.record(event.key, f"instance/{event.instance}", "Note", event.line)
        case _:
            assert_never(event)


def _about_instance(draft: Draft, event: events.InstanceEvent) -> None:
    instance = _current(draft, event)
    if instance is None:
        return
    match event:
        case events.InstanceStarted():
            _started(draft, event, instance)
        case events.InstanceNotStarted():
            text = f"could not be started: {event.reason}"
            fate = Fate.UNUSABLE if event.hopeless else Fate.UNSTARTED
            ended(draft, event.key, instance, fate, None, text)
        case events.InstanceDelayed():
            _delayed(draft, event, instance)
        case events.InstanceLost():
            ended(draft, event.key, instance, Fate.LOST, None, event.reason)
        case events.InstanceEnded():
            text = event.reason or described(event.code)
            ended(draft, event.key, instance, fate_of(event.code), event.code, text)
        case _:
            assert_never(event)
    draft.touch([event.key])


def _about_nodes(draft: Draft, event: events.NodeEvent) -> None:
    match event:
        case events.NodesChanged():
            nodes.nodes_changed(draft, event.nodes)
        case events.NodeCordoned():
            nodes.cordon(draft, event.node)
        case events.NodeDrained():
            nodes.drain(draft, event.node)
        case events.NodeLost():
            nodes.lose(draft, event.node)
        case events.NodeReturned():
            nodes.give_back(draft, event.node)
        case _:
            assert_never(event)


def _note_deadlines(draft: Draft) -> None:
    for key in draft.active:
        if any(at <= draft.now for at in deadlines_of(draft.jobs[key])):
            draft.touch([key])


# --- jobs -------------------------------------------------------------------------------------


def _submitted(draft: Draft, event: events.JobSubmitted) -> None:
    spec = event.spec
    if spec.key in draft.jobs:
        return
    code = Code.NONE if spec.sync is None else Code.FETCHING
    reason = "" if spec.sync is None else "its code is being fetched"
    draft.put_job(Job(spec, event.uid, event.at, spec.workers, code=code, reason=reason))
    draft.touch([spec.key])
    draft.record(spec.key, f"job/{spec.name}", "Submitted", "the job was accepted")
    if spec.sync is not None:
        text = f"fetching code with {spec.sync.mode}"  # a source may hold a password
        draft.record(spec.key, f"job/{spec.name}", "FetchingCode", text)


def _scale_asked(draft: Draft, event: events.ScaleAsked) -> None:
    job = draft.jobs[event.key]
    was = roster.projected(job)
    operation = Operation(
        event.operation,
        event.kind,
        len(event.names) or event.count,
        event.timeout,
        created_at=event.at,
        deadline=event.at + event.timeout,
        workers=event.names,
        was=was,
        partial=event.partial,
        message="it waits for its turn",
        source=event.source,
    )
    change = operation.count if event.kind == SCALEOUT else -operation.count
    operations.accept(draft, event.key, operation, was + change)
    if job.finished or job.deleting:
        operations.close_all(draft, event.key, "the job is over")


def _code_fetched(draft: Draft, event: events.CodeFetched) -> None:
    job = draft.jobs[event.key]
    if job.code is Code.FETCHING and not job.finished and not job.deleting:
        commit = job.commit or event.commit  # what came first holds for all that come later
        draft.set_job(event.key, code=Code.READY, commit=commit, reason="")
        text = f"at commit {commit[:12]}" if commit else "the code is there"
        draft.record(event.key, draft.about_job(event.key), "CodeFetched", text)


def _code_not_fetched(draft: Draft, event: events.CodeNotFetched) -> None:
    job = draft.jobs[event.key]
    if job.code is Code.FETCHING and not job.finished and not job.deleting:
        text = f"its code could not be fetched: {event.reason}"
        job_end.finish(draft, event.key, Phase.FAILED, text)


# --- instances --------------------------------------------------------------------------------


def _current(draft: Draft, event: events.InstanceEvent) -> Instance | None:
    """The instance on its node that the event is about, None if that is no more."""
    job = draft.jobs.get(event.key)
    instance = job.instances.get(event.instance) if job is not None else None
    if instance is None or instance.attempt != event.attempt or instance.stage not in ON_NODE:
        return None
    return instance


def _started(draft: Draft, event: events.InstanceStarted, instance: Instance) -> None:
    """Said again after a restart of the server, so times that are known stay."""
    at = draft.now if instance.started_at is None else instance.started_at
    stage = Stage.RUNNING if instance.stage is Stage.STARTING else instance.stage
    node = event.node or instance.node
    known = {"pid": event.pid, "started_at": at, "stage": stage, "node": node}
    reason = "" if instance.stage is Stage.STARTING else instance.reason
    draft.set_instance(event.key, instance.name, reason=reason, **known)
    if instance.stage is Stage.STARTING:
        process = f" as process {event.pid}" if event.pid else ""
        text = f"running on {node}{process}"
        draft.record(event.key, f"instance/{instance.name}", "Started", text)


def _delayed(draft: Draft, event: events.InstanceDelayed, instance: Instance) -> None:
    if instance.stage is Stage.STARTING and instance.reason != event.reason:
        draft.set_instance(event.key, instance.name, reason=event.reason)
        if event.reason:
            draft.warn(event.key, f"instance/{instance.name}", "Pending", event.reason)
