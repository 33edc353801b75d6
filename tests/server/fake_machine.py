"""A fake machine: instances are files, and end when they are told to.

Everything is under `HOME/fake`, so that it outlives the server as real instances do: one file per
living instance, `NAMESPACE.NAME.INSTANCE.ATTEMPT`. A fake training agrees to every resize, except
for a job with the label `stubborn`. A fake log follows until the job is over.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from midflight.backends.local.interface import LogQuery
from midflight.backends.place import Tell, Wake
from midflight.controller.commands import FetchCode, Order, StartInstance, StopInstance, WriteHosts
from midflight.controller.events import CodeFetched, InstanceNoted
from midflight.controller.orders import Condition, Observed, Sighting
from midflight.controller.state import ENDED, Cluster, Job, Node
from midflight.coordinator.client import Dial
from midflight.errors import NotFound
from midflight.protocol.messages import RequestEnded, ResizeRequested
from midflight.protocol.views import GpuView


class FakeMachine:
    def __init__(self, home: Path) -> None:
        self.root = home / "fake"
        self.root.mkdir(exist_ok=True)
        self.tell: Tell = lambda event: None
        self.wake: Wake = lambda key: None
        self.hosts: dict[str, dict[str, int]] = {}
        self.fetching: set[str] = set()

    def nodes(self) -> tuple[Node, ...]:
        return (Node("here", "127.0.0.1", 8, virtual=True),)

    def gpus(self, node: Node) -> list[GpuView]:
        return [{"index": 0, "dutyCycle": 37, "memoryUsed": 1 << 30, "memoryTotal": 4 << 30}]

    async def open(self, cluster: Cluster, tell: Tell, wake: Wake) -> None:
        self.tell, self.wake = tell, wake
        for file in self.root.iterdir():
            namespace, name, _ = file.name.split(".", 2)
            if f"{namespace}/{name}" not in cluster.jobs:
                file.unlink()

    def observed(self, job: Job) -> Observed:
        found = {}
        for file in self.root.glob(f"{job.key.replace('/', '.')}.*"):
            instance, attempt = file.name.split(".")[-2:]
            found[instance] = Sighting(int(attempt), Condition.RUNNING, pid=os.getpid())
        fetching = "code" if job.key in self.fetching else ""
        return Observed(time.time(), found, fetching, self.hosts.get(job.key))

    def carry_out(self, order: Order, cluster: Cluster) -> None:
        match order:
            case FetchCode(key):
                self.fetching.add(key)
                self.tell(CodeFetched(time.time(), key, "0" * 40))
            case StartInstance(key, instance, attempt):
                self._file(key, instance, attempt).touch()
                self.tell(InstanceNoted(time.time(), key, instance, "this is only a file"))
            case StopInstance(key, instance, attempt):
                self._file(key, instance, attempt).unlink(missing_ok=True)
            case WriteHosts(key, hosts):
                self.hosts[key] = hosts
        self.wake(order.key)

    def remove(self, key: str, cluster: Cluster) -> None:
        self.hosts.pop(key, None)
        self.fetching.discard(key)

    def dial(self, job: Job) -> Dial:
        async def dial() -> "FakeTraining":
            return FakeTraining("stubborn" not in job.spec.labels)

        return dial  # type: ignore[return-value]  # it is as much of a wire as is needed

    def expects_run(self, job: Job) -> bool:
        return True

    async def logs(
        self, job: Job, query: LogQuery, over: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        if query.instance and query.instance not in job.instances:
            raise NotFound(f"no instance is named {query.instance}")
        yield b"a first line\n"
        while query.follow and not over():  # noqa: ASYNC110 - `over` is no event
            await asyncio.sleep(0.02)
        yield b"a last line\n"

    def chaos(self, job: Job, what: str, instance: str) -> None:
        found = job.instances[instance]
        if found.stage in ENDED:
            raise NotFound(f"{instance} has ended")
        if what == "kill":
            self._file(job.key, instance, found.attempt).unlink(missing_ok=True)
            self.wake(job.key)

    def folder(self, job: Job) -> str:
        return str(self.root / job.key)

    async def close(self) -> None:
        pass

    def _file(self, key: str, instance: str, attempt: int) -> Path:
        return self.root / f"{key.replace('/', '.')}.{instance}.{attempt}"


class FakeTraining:
    """A wire to a coordinator that answers a resize at once, and nothing else."""

    def __init__(self, agrees: bool) -> None:
        self._agrees = agrees
        self._answer: asyncio.Future[RequestEnded] = asyncio.get_running_loop().create_future()

    def send(self, message: object) -> None:
        if isinstance(message, ResizeRequested):
            self._answer.set_result(RequestEnded(self._agrees, "as it was asked"))

    async def receive(self) -> RequestEnded:
        return await self._answer

    def close(self) -> None:
        pass
