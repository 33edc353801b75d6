"""What the server needs of a place where instances run.

A backend carries commands out and tells what happened as events, through the `tell` it was opened
with; it never decides. It keeps instances running when it is closed, and when the server is
killed: `adopt` finds them again.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from midflight.controller.commands import Command
from midflight.controller.events import Event
from midflight.controller.state import Cluster, Job, Node
from midflight.protocol.messages import Status
from midflight.protocol.views import GpuView

Tell = Callable[[Event], None]


@dataclass(frozen=True)
class LogQuery:
    instance: str = ""  # "" for the chief's
    all: bool = False  # every instance's, merged by time, each line with its instance's name
    follow: bool = False  # until the job is over
    tail: int = -1  # lines from the end; -1 for all
    since: float = 0.0  # seconds since the epoch
    timestamps: bool = False


class Backend(Protocol):
    def nodes(self) -> tuple[Node, ...]:
        """What there is without anybody having asked for simulated nodes."""
        ...

    def gpus(self, node: Node) -> list[GpuView]:
        """How busy its devices are; empty where that is not known."""
        ...

    async def open(self, tell: Tell) -> None: ...

    async def adopt(self, cluster: Cluster) -> None:
        """For each instance on a node: InstanceStarted if it is alive, else how it ended.

        Also ends what runs but is in no job of the cluster any more.
        """
        ...

    def carry_out(self, command: Command, cluster: Cluster) -> None:
        """At once; what takes time goes on behind. Never raises: what goes wrong is an event."""
        ...

    async def training(self, job: Job) -> Status | None:
        """What the coordinator of the job's run says now, None if nobody answers."""
        ...

    def logs(self, job: Job, query: LogQuery, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        """`over` says whether the job has ended, so that following it can end too."""
        ...

    def chaos(self, job: Job, what: str, instance: str) -> None:
        """kill | stop | cont | cut one instance; Refused or NotFound if that cannot be."""
        ...

    def folder(self, job: Job) -> str: ...

    async def close(self) -> None:
        """Let go of everything; instances stay."""
        ...
