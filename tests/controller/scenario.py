"""A fake place around `handle` and `orders`: processes, a training, and a clock the test moves.

Each order has its outcome, which waits in `outcomes` until it is delivered; by default that is at
once, and with `held=True` it is when the test says so, in whatever order. `promises.py` checks what
must hold after every event.
"""

from collections.abc import Callable
from typing import Any

from midflight.controller import commands as do
from midflight.controller import events, roster
from midflight.controller.handle import handle
from midflight.controller.orders import (
    Condition,
    Observed,
    Sighting,
    news,
    next_look,
    open_requests,
    orders,
)
from midflight.controller.scale_rules import objection, operation_id, resolve
from midflight.controller.spec import Kind, Spec, Sync
from midflight.controller.state import Cluster, Instance, Job, Node, NodeStage, Operation, Stage
from midflight.protocol import codec
from tests.controller.promises import Promises, next_deadline

Outcome = Callable[[], events.Event]
AGAIN = 5.0  # seconds to the next kill of one that does not end, beside the time it is late


def node(name: str, gpus: int = 4, **labels: str) -> Node:
    return Node(name, f"127.0.1.{name[-1]}", gpus, labels=labels)


class Scenario:
    def __init__(self, *nodes: Node, held: bool = False) -> None:
        """Three nodes of four GPUs, unless others are given."""
        self.now = 1000.0
        self.cluster = Cluster()
        self.held = held
        self.commands: list[do.Order | do.AskResize] = []  # all that were given
        self.records: list[do.Record] = []
        self.alive: dict[tuple[str, str], int] = {}  # the attempt that runs
        self.told: dict[tuple[str, str], float] = {}  # who was told to end, and by when
        self.killed: set[tuple[str, str]] = set()
        self.hosts: dict[str, dict[str, int]] = {}  # hostfiles, by job
        self.fetching: set[str] = set()
        self.asking: set[str] = set()  # requests
        self.asked_before: frozenset[str] = frozenset()
        self.outcomes: list[Outcome] = []
        self.asked: dict[str, do.AskResize] = {}  # without an answer yet
        self.training_answers = True
        self.code_comes = True
        self.deaf: set[str] = set()  # instances of which no end is heard
        self.promises = Promises()
        names = nodes or tuple(node(f"node-{number}") for number in (1, 2, 3))
        self.tell(events.NodesChanged(self.now, names))

    # --- looking ----------------------------------------------------------------------------

    def job(self, name: str = "job") -> Job:
        return self.cluster.jobs[f"default/{name}"]

    def instance(self, name: str, job: str = "job") -> Instance:
        return self.job(job).instances[f"{job}-{name}"]

    def stages(self, job: str = "job") -> dict[str, str]:
        return {i.name[len(job) + 1 :]: i.stage.value for i in self.job(job).instances.values()}

    def operation(self, name: str = "job") -> Operation:
        return self.job(name).operations[-1]

    def given(self, kind: type) -> list[Any]:
        return [command for command in self.commands if isinstance(command, kind)]

    def said(self, reason: str) -> list[str]:
        return [r.message for r in self.records if r.reason == reason]

    # --- doing ------------------------------------------------------------------------------

    def etjob(self, name: str = "job", **spec: Any) -> Job:
        spec = {"workers": 3, "min_workers": 1, "max_workers": 9, "gpus": 1, **spec}
        return self.submit(Spec(Kind.ETJOB, name, "python train.py", **spec))

    def pytorchjob(self, name: str = "job", **spec: Any) -> Job:
        spec = {"workers": 3, "gpus": 1, **spec}
        return self.submit(Spec(Kind.PYTORCHJOB, name, "python train.py", **spec))

    def submit(self, spec: Spec) -> Job:
        self.tell(events.JobSubmitted(self.now, spec, f"uid-{spec.name}"))
        return self.cluster.jobs[spec.key]

    def delete(self, name: str = "job") -> None:
        self.tell(events.JobDeleted(self.now, f"default/{name}"))

    def hold(self, holder: str = "a queue", name: str = "job") -> None:
        self.tell(events.JobHeld(self.now, f"default/{name}", holder))

    def release(self, name: str = "job") -> None:
        self.tell(events.JobReleased(self.now, f"default/{name}"))

    def scale(
        self, kind: str, count: int = 1, names: tuple[str, ...] = (), **more: Any
    ) -> Operation:
        """Of the job "job", or of `job`."""
        job = self.job(more.pop("job", "job"))
        names = tuple(f"{job.spec.name}-{name}" for name in names)
        wrong = objection(job, kind, count, names, None)
        assert wrong is None, wrong
        kind, count = resolve(job, kind, count, names, None)
        more = {"timeout": 60.0, **more}
        identity = operation_id(job, self.now)
        self.tell(events.ScaleAsked(self.now, job.key, identity, kind, count, names=names, **more))
        return next(o for o in self.cluster.jobs[job.key].operations if o.id == identity)

    def end(self, name: str, code: int, job: str = "job") -> None:
        """A process ends by itself."""
        instance = self.instance(name, job)
        self.alive.pop((f"default/{job}", instance.name), None)
        attempt = instance.attempt
        self.tell(events.InstanceEnded(self.now, f"default/{job}", instance.name, attempt, code))

    def cannot_start(
        self, name: str, reason: str, hopeless: bool = False, job: str = "job"
    ) -> None:
        instance = self.instance(name, job)
        self.alive.pop((f"default/{job}", instance.name), None)
        self.tell(
            events.InstanceNotStarted(
                self.now, f"default/{job}", instance.name, instance.attempt, reason, hopeless
            )
        )

    def node(self, action: str, name: str) -> None:
        kinds: dict[str, Callable[[float, str], events.Event]] = {
            "cordon": events.NodeCordoned,
            "drain": events.NodeDrained,
            "lose": events.NodeLost,
            "return": events.NodeReturned,
        }
        self.tell(kinds[action](self.now, name))

    def answer(self, ok: bool, detail: str = "", job: str = "job") -> None:
        """The training's answer to what was asked of it last."""
        key = f"default/{job}"
        operation = self.operation(job).id if key not in self.asked else self.asked[key].operation
        self.asked.pop(key, None)
        self.tell(events.ResizeEnded(self.now, key, operation, ok, detail))

    def wait(self, seconds: float) -> None:
        """Time passes, and every deadline on the way fires."""
        until = self.now + seconds
        while (deadline := self._next_deadline()) is not None and deadline <= until:
            self.now = max(deadline, self.now)
            self.tell(events.TimePassed(self.now))
        self.now = until
        self._let_training_give_up()

    def restart(self) -> None:
        """The server dies and takes the state from its journal; what it had not heard is lost."""
        jobs = {key: codec.decode(Job, codec.encode(j)) for key, j in self.cluster.jobs.items()}
        nodes = {
            name: codec.decode(Node, codec.encode(n)) for name, n in self.cluster.nodes.items()
        }
        self.cluster = Cluster(nodes, jobs)
        for forgotten in (self.outcomes, self.asked, self.asking, self.fetching, self.told):
            forgotten.clear()
        self.hosts.clear()
        self.asked_before = frozenset().union(*map(open_requests, jobs.values()))
        self.tell(*(each for job in jobs.values() for each in news(job, self.observed(job))))
        self.tell(events.ServerStarted(self.now))
        self.deliver_all()

    # --- the loop ---------------------------------------------------------------------------

    def tell(self, *told: events.Event) -> None:
        for event in told:
            before = self.cluster
            self.cluster, records = handle(before, event)
            self.promises.check(before, event, self.cluster, records)
            self.records.extend(records)
            for key in before.jobs.keys() - self.cluster.jobs.keys():
                self._clear_away(before.jobs[key])
                self.asked.pop(key, None)
                self.hosts.pop(key, None)
                self.fetching.discard(key)
        self._reconcile()
        if not self.held:
            self.deliver_all()

    def _clear_away(self, job: Job) -> None:
        """The place kills what is left of a job: only what nobody could reach on a lost node."""
        for key, name in [each for each in self.alive if each[0] == job.key]:
            node = self.cluster.nodes.get(job.instances[name].node)
            assert node is None or node.stage is NodeStage.LOST, f"{name} outlives its job"
            del self.alive[key, name]

    def observed(self, job: Job) -> Observed:
        found = {
            name: Sighting(
                attempt,
                Condition.RUNNING,
                pid=77,
                ends_at=self.told.get((key, name)),
                can_hurry=(key, name) not in self.killed,
            )
            for (key, name), attempt in self.alive.items()
            if key == job.key
        }
        fetching = "code" if job.key in self.fetching else ""
        more = (self.hosts.get(job.key), self.asking, self.asked_before)
        return Observed(self.now, found, fetching, *more)

    def _reconcile(self) -> None:
        """Until nothing is left to do."""
        while given := [o for j in self.cluster.jobs.values() for o in orders(j, self.observed(j))]:
            self.promises.check_orders(self.cluster, given)
            self.commands.extend(given)
            for order in given:
                self._carry_out(order)

    def _next_deadline(self) -> float | None:
        jobs = self.cluster.jobs.values()
        looks = [next_look(job, self.observed(job)) for job in jobs]
        found = [at for at in (next_deadline(self.cluster), *looks) if at is not None]
        return min(found, default=None)

    def deliver_all(self) -> None:
        while self.outcomes:
            self.deliver(0)
        self._let_training_agree()

    def deliver(self, number: int) -> None:
        event = self.outcomes.pop(number)()
        held, self.held = self.held, True
        self.tell(event)
        self.held = held

    def _carry_out(self, order: do.Order | do.AskResize) -> None:
        match order:
            case do.FetchCode(key):
                self.fetching.add(key)
                if self.code_comes:
                    self.outcomes.append(lambda: events.CodeFetched(self.now, key, "c0ffee"))
            case do.StartInstance():
                self._start(order)
            case do.StopInstance():
                self._stop(order)
            case do.AskResize():
                self.asking.add(order.request)
                self.asked[order.key] = order
            case do.WriteHosts(key, hosts):
                self.hosts[key] = hosts

    def _start(self, order: do.StartInstance) -> None:
        key, name, attempt = order.key, order.instance, order.attempt
        assert (key, name) not in self.alive, f"{name} runs twice"
        self.alive[key, name] = attempt
        self.told.pop((key, name), None)
        self.killed.discard((key, name))
        self.outcomes.append(
            lambda: events.InstanceStarted(self.now, key, name, attempt, 100 + attempt)
        )

    def _stop(self, order: do.StopInstance) -> None:
        """A kill is certain, but its news may come late; of who is deaf no end is seen."""
        key, name, attempt = order.key, order.instance, order.attempt
        self.told[key, name] = self.now + (AGAIN if order.force else order.grace)
        if not order.grace:
            self.killed.add((key, name))
        if name in self.deaf:
            return
        code = -15 if order.grace else -9

        def ended() -> events.Event:
            if self.alive.get((key, name)) == attempt:
                del self.alive[key, name]
                self.told.pop((key, name), None)
            return events.InstanceEnded(self.now, key, name, attempt, code)

        if not order.grace:
            ended()
        self.outcomes.append(ended)

    # --- the training -----------------------------------------------------------------------

    def _let_training_agree(self) -> None:
        """It switches as soon as all members are there that it was asked for."""
        for key, ask in list(self.asked.items()):
            job = self.cluster.jobs.get(key)
            if job is None or self.asked.get(key) is not ask or not self.training_answers:
                continue
            up = [i for i in roster.counted(job) if i.stage is Stage.RUNNING]
            if ask.members is None or roster.slots(job, len(up)) >= ask.members:
                del self.asked[key]
                self.tell(events.ResizeEnded(self.now, key, ask.operation, True, "switched"))

    def _let_training_give_up(self) -> None:
        for key, ask in list(self.asked.items()):
            job = self.cluster.jobs.get(key)
            if job is None or self.asked.get(key) is not ask or not self.training_answers:
                continue
            operation = next((o for o in job.operations if o.id == ask.operation), None)
            if operation is not None and self.now >= operation.deadline:
                del self.asked[key]
                self.tell(events.ResizeEnded(self.now, key, ask.operation, False, "not ready"))


GIT = Sync("git", "https://example.org/mnist.git")
