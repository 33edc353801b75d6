"""What the server needs of the machine on which instances run.

A machine carries orders out and tells what it finds; it never decides. It keeps instances running
when it is closed, and when the server is killed.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from midflight.backends.place import Tell, Wake
from midflight.controller.commands import Order
from midflight.controller.orders import Observed
from midflight.controller.state import Cluster, Job, Node
from midflight.coordinator.client import Dial
from midflight.protocol.views import GpuView


@dataclass(frozen=True)
class LogQuery:
    instance: str = ""  # "" for the chief's
    all: bool = False  # every instance's, merged by time, each line with its instance's name
    follow: bool = False  # until the job is over
    tail: int = -1  # lines from the end; -1 for all
    since: float = 0.0  # seconds since the epoch
    timestamps: bool = False


class Machine(Protocol):
    def nodes(self) -> tuple[Node, ...]:
        """What there is without anybody having asked for simulated nodes."""
        ...

    def gpus(self, node: Node) -> list[GpuView]:
        """How busy its devices are; empty where that is not known."""
        ...

    async def open(self, cluster: Cluster, tell: Tell, wake: Wake) -> None:
        """Find what runs, and remove what is left of jobs that are not in the cluster."""
        ...

    def observed(self, job: Job) -> Observed:
        """What exists of a job at this moment."""
        ...

    def carry_out(self, order: Order, cluster: Cluster) -> None:
        """At once; what takes time goes on behind, and what goes wrong is told or seen."""
        ...

    def remove(self, key: str, cluster: Cluster) -> None:
        """Everything of a job; what is ordered later for its name waits for that."""
        ...

    def dial(self, job: Job) -> Dial: ...

    def expects_run(self, job: Job) -> bool: ...

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
