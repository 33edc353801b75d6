"""This machine as a place: its keepers are the instances, and its journal holds the state."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from midflight.backends.local.interface import Machine
from midflight.backends.local.journal import Journal
from midflight.backends.local.nodes import are_simulated
from midflight.backends.place import Noted, Step, Tell, Wake, news_of
from midflight.controller.commands import Order
from midflight.controller.events import Event, NodesChanged, ServerStarted
from midflight.controller.job_end import DELETED
from midflight.controller.orders import Observed
from midflight.controller.state import Cluster, Job
from midflight.coordinator.client import Dial


class LocalPlace:
    name = "this machine"
    gone = False

    def __init__(self, journal: Journal, machine: Machine) -> None:
        self.journal = journal
        self.machine = machine
        self.cluster = journal.load()
        self._taken_up = False

    async def open(self, tell: Tell, wake: Wake) -> None:
        await self.machine.open(self.cluster, tell, wake)

    def turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def observe(self, keys: Collection[str]) -> Sequence[Step]:
        first: list[Step] = [] if self._taken_up else [self._take_up]
        return [*first, *(news_of(key, self.observed) for key in sorted(keys))]

    def _take_up(self, cluster: Cluster, now: float) -> Iterable[Event]:
        if not are_simulated(cluster.nodes):
            yield NodesChanged(now, self.machine.nodes())
        yield ServerStarted(now)

    def observed(self, job: Job) -> Observed:
        return self.machine.observed(job)

    async def save(self, cluster: Cluster, records: Sequence[Noted]) -> None:
        self.journal.save(self.cluster, cluster, _wanted(records, cluster))
        self.cluster = cluster
        self._taken_up = True

    async def carry_out(self, job: Job, orders: Sequence[Order]) -> None:
        for order in orders:
            self.machine.carry_out(order, self.cluster)

    async def remove(self, job: Job) -> None:
        self.machine.remove(job.key, self.cluster)

    def due(self) -> float | None:
        return None

    def dial(self, job: Job) -> Dial:
        return self.machine.dial(job)

    def expects_run(self, job: Job) -> bool:
        return self.machine.expects_run(job)

    async def close(self) -> None:
        await self.machine.close()
        self.journal.close()


def _wanted(records: Sequence[Noted], cluster: Cluster) -> list[Noted]:
    """The records of a job go with it, also if there is another one of its name by now."""
    kept: list[Noted] = []
    for noted in records:
        kept.append(noted)
        if noted.record.reason == DELETED:
            kept = [each for each in kept if each.record.key != noted.record.key]
    return [each for each in kept if not each.record.key or each.record.key in cluster.jobs]
