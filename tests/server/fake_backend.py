"""A fake backend: instances are files, and end when they are told to.

Everything is under `HOME/fake`, so that it outlives the server as real instances do: one file per
living instance, `NAMESPACE.NAME.INSTANCE.ATTEMPT`. A fake training agrees to every resize, except
for a job with the label `stubborn`. A fake log follows until the job is over.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from midflight.backends.interface import LogQuery, Tell
from midflight.controller.commands import (
    AskResize,
    Command,
    FetchCode,
    RemoveJob,
    StartInstance,
    StopInstance,
)
from midflight.controller.events import (
    CodeFetched,
    InstanceEnded,
    InstanceStarted,
    ResizeEnded,
)
from midflight.controller.state import ENDED, ON_NODE, Cluster, Job, Node, Stage
from midflight.errors import NotFound
from midflight.protocol.messages import Status
from midflight.protocol.views import GpuView


class FakeBackend:
    def __init__(
        self, home: Path, tell_note: Callable[[str, str, str], None] = lambda *_: None
    ) -> None:
        self.tell_note = tell_note
        self.root = home / "fake"
        self.root.mkdir(exist_ok=True)
        self.tell: Tell = lambda event: None
        self.removed: set[str] = set()

    def nodes(self) -> tuple[Node, ...]:
        return (Node("here", "127.0.0.1", 8, virtual=True),)

    def gpus(self, node: Node) -> list[GpuView]:
        return [{"index": 0, "dutyCycle": 37, "memoryUsed": 1 << 30, "memoryTotal": 4 << 30}]

    async def open(self, tell: Tell) -> None:
        self.tell = tell

    async def adopt(self, cluster: Cluster) -> None:
        for job in cluster.jobs.values():
            for instance in job.instances.values():
                if instance.stage in ON_NODE:
                    self._adopt(job.key, instance.name, instance.attempt, instance.stage)
        for file in self.root.iterdir():
            namespace, name, _ = file.name.split(".", 2)
            if f"{namespace}/{name}" not in cluster.jobs:
                file.unlink()

    def _adopt(self, key: str, instance: str, attempt: int, stage: Stage) -> None:
        if self._file(key, instance, attempt).exists():
            self.tell(InstanceStarted(time.time(), key, instance, attempt, os.getpid()))
        elif stage is not Stage.STARTING:  # else it is started again by a command
            self.tell(InstanceEnded(time.time(), key, instance, attempt, 0))

    def carry_out(self, command: Command, cluster: Cluster) -> None:
        now = time.time()
        match command:
            case FetchCode():
                self.tell(CodeFetched(now, command.key, "0" * 40))
            case StartInstance():
                self._file(command.key, command.instance, command.attempt).touch()
                self.tell_note(command.key, command.instance, "this is only a file")
                self.tell(
                    InstanceStarted(
                        now, command.key, command.instance, command.attempt, os.getpid()
                    )
                )
            case StopInstance():
                self._end(command.key, command.instance, command.attempt, -15)
            case AskResize():
                ok = "stubborn" not in cluster.jobs[command.key].spec.labels
                self.tell(ResizeEnded(now, command.key, command.operation, ok, "as it was asked"))
            case RemoveJob():
                self.removed.add(command.key)
            case _:
                pass

    async def training(self, job: Job) -> Status | None:
        return None

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
            self._end(job.key, instance, found.attempt, -9)

    def folder(self, job: Job) -> str:
        return str(self.root / job.key)

    async def close(self) -> None:
        pass

    def _end(self, key: str, instance: str, attempt: int, code: int) -> None:
        self._file(key, instance, attempt).unlink(missing_ok=True)
        self.tell(InstanceEnded(time.time(), key, instance, attempt, code))

    def _file(self, key: str, instance: str, attempt: int) -> Path:
        return self.root / f"{key.replace('/', '.')}.{instance}.{attempt}"
