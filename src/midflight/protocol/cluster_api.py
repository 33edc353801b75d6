"""What the command line asks of wherever jobs run, this machine or a cluster.

`client.Client` satisfies it by asking the server on this machine, the Kubernetes client by asking
the API server. Both answer with the same views, so a verb does not know which of them it has.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from midflight.protocol.views import (
    EventView,
    GpuView,
    JobSummary,
    JobView,
    NodeView,
    OperationView,
    PrunedView,
    ServerView,
)


def ignore(created: str) -> None:
    """For those who do not want to hear what was created."""


class ClusterApi(Protocol):
    def status(self) -> ServerView: ...

    def stop(self) -> None: ...

    def nodes(self) -> list[NodeView]: ...

    def simulate_nodes(self, count: int, gpus: int) -> list[NodeView]: ...

    def node_action(self, node: str, action: str) -> NodeView: ...

    def gpus(self, node: str) -> list[GpuView]:
        """How busy its devices are; empty where that is not known."""
        ...

    def submit(self, spec: Mapping[str, Any], created: Callable[[str], None] = ignore) -> JobView:
        """`created` hears of each object that the job becomes, as RESOURCE/NAME."""
        ...

    def jobs(self, namespace: str, kind: str = "") -> list[JobSummary]: ...

    def job(self, namespace: str, name: str) -> JobView: ...

    def delete(self, namespace: str, name: str) -> None: ...

    def wait(self, namespace: str, name: str, until: str, timeout: float) -> JobView | None:
        """The job once it is running or finished, None once it is gone; or else TimedOut."""
        ...

    def scale(self, namespace: str, name: str, wish: Mapping[str, Any]) -> OperationView: ...

    def operation(
        self, namespace: str, name: str, operation: str, after: int = 0, timeout: float = 0.0
    ) -> OperationView:
        """As soon as it has changed more than `after` times, or as it is after `timeout`."""
        ...

    def events(self, namespace: str, name: str = "") -> list[EventView]: ...

    def training(self, namespace: str, name: str) -> dict[str, Any] | None:
        """What the coordinator of the job says, None if nobody here can ask it."""
        ...

    def chaos(self, namespace: str, name: str, what: str, instance: str) -> None: ...

    def prune(self, namespace: str, since: float) -> list[PrunedView]: ...

    def logs(self, namespace: str, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of text as they come; with `follow` in the query, until the job is over."""
        ...

    def attach(self, job: JobView, instance: str, container: str, command: Sequence[str]) -> int:
        """Run the command, or a shell, beside the instance's processes; its exit code."""
        ...
