"""Place: where the jobs of one loop run, and where their state is saved.

There are two: this machine, with keepers and a journal, and a cluster, with pods and the status of
the job's object. A place decides nothing: it says what is there, saves what was decided, and
carries out what follows from it. Whatever it is told may be told twice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from midflight.controller.commands import Order, Record
from midflight.controller.events import Event
from midflight.controller.orders import Observed, news
from midflight.controller.state import Cluster, Job
from midflight.coordinator.client import Dial
from midflight.errors import MidflightError

Step = Callable[[Cluster, float], Iterable[Event]]
"""What one thing that was seen means, given the state at that moment and the time."""

Tell = Callable[[Event], None]  # something that cannot be seen by looking; from any thread
Wake = Callable[[str], None]  # something about the job of this key may have changed


class Deposed(MidflightError):
    """Somebody else may decide by now: this loop is over."""


@dataclass(frozen=True)
class Noted:
    """A record with its time, as it is saved."""

    at: float
    record: Record


class Place(Protocol):
    @property
    def name(self) -> str:
        """For the log."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The state, as it is saved."""
        ...

    @property
    def gone(self) -> bool:
        """Nothing is left to reconcile here, and nothing will come."""
        ...

    async def open(self, tell: Tell, wake: Wake) -> None:
        """Find out what is there. From now on changes are told."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Held during a pass, where many loops share what they need."""
        ...

    async def observe(self, keys: Collection[str]) -> Sequence[Step] | None:
        """What these jobs show, in the order in which it counts; None: nothing is to be decided."""
        ...

    def observed(self, job: Job) -> Observed:
        """What exists of a job at this moment, as far as the place knows."""
        ...

    async def save(self, cluster: Cluster, records: Sequence[Noted]) -> None:
        """All of it, or an error, and then none of it."""
        ...

    async def carry_out(self, job: Job, orders: Sequence[Order]) -> None:
        """What takes time may go on behind; what goes wrong behind is told."""
        ...

    async def remove(self, job: Job) -> None:
        """Nothing of it runs any more, and it is in the state no longer."""
        ...

    def due(self) -> float | None:
        """When it wants to be looked at, although nothing is heard of it."""
        ...

    def dial(self, job: Job) -> Dial:
        """How to reach the coordinator of the job's run."""
        ...

    def expects_run(self, job: Job) -> bool:
        """Whether the job has a run, or will have one, whose coordinator can be asked."""
        ...

    async def close(self) -> None:
        """Let go; instances go on."""
        ...


def news_of(key: str, observed: Callable[[Job], Observed]) -> Step:
    """What the instances of a job tell, if it is still there."""

    def step(cluster: Cluster, now: float) -> Iterable[Event]:
        job = cluster.jobs.get(key)
        return news(job, observed(job)) if job is not None else ()

    return step


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is new or other in `after`; None for what is no longer there."""
    if before is after:
        return {}
    found = {
        key: value
        for key, value in after.items()
        if (former := before.get(key)) is not value and former != value
    }
    found.update(dict.fromkeys(key for key in before if key not in after))
    return found
