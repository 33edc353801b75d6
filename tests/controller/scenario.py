"""A fake backend around `handle`: processes, a training that answers, and a clock the test moves.

Each command has its outcome, which waits in `outcomes` until it is delivered; by default that is at
once, and with `held=True` it is when the test says so, in whatever order. `promises.py` checks what
must hold after every event.
"""

from collections.abc import Callable
from typing import Any

from midflight.controller import commands as do
from midflight.controller import events, roster
from midflight.controller.deadlines import next_deadline
from midflight.controller.handle import handle
from midflight.controller.scale_rules import objection, operation_id, resolve
from midflight.controller.spec import Kind, Spec, Sync
from midflight.controller.state import Cluster, Instance, Job, Node, Operation, Stage
from midflight.protocol import codec
from tests.controller.promises import Promises

Outcome = Callable[[], events.Event]


def node(name: str, gpus: int = 4, **labels: str) -> Node:
    return Node(name, f"127.0.1.{name[-1]}", gpus, labels=labels)


class Scenario:
    def __init__(self, *nodes: Node, held: bool = False) -> None:
        """Three nodes of four GPUs, unless others are given."""
        self.now = 1000.0
        self.cluster = Cluster()
        self.held = held
        self.commands: list[do.Command] = []  # all that were given
        self.alive: dict[tuple[str, str], int] = {}  # the attempt that runs
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
        return [r.message for r in self.given(do.Record) if r.reason == reason]

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

    def cannot_start(self, name: str, reason: str, job: str = "job") -> None:
        instance = self.instance(name, job)
        self.alive.pop((f"default/{job}", instance.name), None)
        self.tell(
            events.InstanceNotStarted(
                self.now, f"default/{job}", instance.name, instance.attempt, reason
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
        while (deadline := next_deadline(self.cluster)) is not None and deadline <= until:
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
        self.outcomes.clear()
        self.asked.clear()
        self.tell(events.ServerStarted(self.now))
        for job in list(self.cluster.jobs.values()):
            for instance in job.instances.values():
                self._adopt(job.key, instance)
        self.deliver_all()

    def _adopt(self, key: str, instance: Instance) -> None:
        attempt = instance.attempt
        if self.alive.get((key, instance.name)) == attempt:
            self.tell(events.InstanceStarted(self.now, key, instance.name, attempt, 77))
        elif instance.stage.value in ("Running", "Terminating"):
            self.tell(events.InstanceEnded(self.now, key, instance.name, attempt, -9, "was gone"))

    # --- the loop ---------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        before = self.cluster
        self.cluster, given = handle(before, event)
        self.promises.check(before, event, self.cluster, given)
        self.commands.extend(given)
        for command in given:
            self._carry_out(command)
        if not self.held:
            self.deliver_all()

    def deliver_all(self) -> None:
        while self.outcomes:
            self.deliver(0)
        self._let_training_agree()

    def deliver(self, number: int) -> None:
        event = self.outcomes.pop(number)()
        held, self.held = self.held, True
        self.tell(event)
        self.held = held

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.FetchCode(key) if self.code_comes:
                self.outcomes.append(lambda: events.CodeFetched(self.now, key, "c0ffee"))
            case do.StartInstance():
                self._start(command)
            case do.StopInstance():
                self._stop(command)
            case do.AskResize():
                self.asked[command.key] = command
            case do.RemoveJob(key):
                assert not [name for other, name in self.alive if other == key]
                self.asked.pop(key, None)
            case _:
                pass  # nothing follows

    def _start(self, command: do.StartInstance) -> None:
        key, name, attempt = command.key, command.instance, command.attempt
        assert self.alive.get((key, name), attempt) == attempt, f"{name} runs twice"
        self.alive[key, name] = attempt
        self.outcomes.append(
            lambda: events.InstanceStarted(self.now, key, name, attempt, 100 + attempt)
        )

    def _stop(self, command: do.StopInstance) -> None:
        """A kill is certain, but its news may come late, or not at all from who is deaf."""
        key, name, attempt = command.key, command.instance, command.attempt
        code = -15 if command.grace else -9

        def ended() -> events.Event:
            if self.alive.get((key, name)) == attempt:
                del self.alive[key, name]
            return events.InstanceEnded(self.now, key, name, attempt, code)

        if not command.grace:
            ended()
        if name not in self.deaf:
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
