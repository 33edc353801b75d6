"""Faults of several parts, each of which waits for what the one before has brought about.

Around a planned change that makes the job smaller, a leaver falls behind the others: until it has
come to the switch, its state may or may not be the job's. So its script is busy there while
something happens to those who have gone on.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midflight.coordinator.core.state import Change, ChangeStage
from tests.simulation.group import LOOK_SECONDS
from tests.simulation.member import BUSY_SECONDS, Training

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults import Fault, Strikes

LATE_NEWS = 4.0  # seconds; after a little more, members would take the line for broken
ASK_WITHIN = 30.0
GO_ON_WITHIN = 10.0
SHOW_WITHIN = 60.0
TURNS_TO_SEND = 5  # of the loop, in which no time passes: a line goes through the agent's queue


class Sequences:
    """Carries them out."""

    def __init__(self, strikes: "Strikes", cluster: "Cluster") -> None:
        self._strikes = strikes
        self._cluster = cluster

    async def break_while_printing(self, fault: "Fault") -> None:
        """An agent's line breaks while a member prints: what is on its way is lost."""
        cluster, member = self._cluster, self._strikes.member(fault)
        host = next((h for h in cluster.hosts if member and h.name == member.host), None)
        if member is None or host is None or host.agent is None or not host.is_connected:
            return
        agent, line = host.agent, f"what {member.name} prints at {fault.at:.2f} s"
        self._strikes.say(f"{agent.name} loses its connection while it says {line}")
        host.print(member.name, line)
        for _ in range(TURNS_TO_SEND):
            await asyncio.sleep(0)
        for endpoint in [e for e in cluster.network.endpoints if e.process is agent]:
            cluster.disturb(agent.name, endpoint.peer.process.name)
            cluster.network.reset(endpoint)

        def is_known() -> bool:
            well = host.is_connected and cluster.witness.is_well(member.name)
            return well or not (agent.alive and member.alive)

        await happens(is_known, SHOW_WITHIN, LOOK_SECONDS)
        await asyncio.sleep(1.0)
        still = agent.alive and member.alive and host.is_connected
        if still and line not in cluster.witness.printed:
            cluster.witness.find(f"{line} was never shown")

    async def leaver_falls_behind(self, fault: "Fault") -> None:
        """A leaver's script is busy at the switch; the others have gone on, and are stopped."""
        if (parting := await self._make_smaller()) is None:
            return
        with busy(parting.leavers, parting.change.step):
            if await happens(lambda: all_others_settled(self._cluster, parting), GO_ON_WITHIN):
                stop = self._strikes.stop
                await asyncio.gather(*(stop(t.process, GO_ON_WITHIN / 2) for t in parting.stayers))

    async def leaver_comes_back(self, fault: "Fault") -> None:
        """A leaver alone completes a step; the others repeat it, and then their world breaks."""
        if (parting := await self._make_smaller()) is None:
            return
        leaver, say = parting.leavers[0], self._strikes.say
        with busy(parting.leavers, parting.change.step + 1):
            if not await completes_alone(self._cluster, parting):
                return
            say(f"{leaver.process.name} alone has completed step {leaver.steps_done}")
            if await happens(lambda: is_repeated(leaver, parting), GO_ON_WITHIN):
                say("the others have repeated it, and a connection between them breaks")
                parting.stayers[0].group.is_reset = True
                await happens(lambda: has_recovered(self._cluster, parting), GO_ON_WITHIN)

    async def _make_smaller(self) -> "Parting | None":
        if (size := self._cluster.witness.size) < 2:
            return None
        self._strikes.ask(size - 1, ASK_WITHIN)
        return await next_parting(self._cluster)


@dataclass(frozen=True)
class Parting:
    """A change that was published, and that nobody has carried out yet."""

    change: Change
    generation: int  # of the world after it
    leavers: tuple[Training, ...]
    stayers: tuple[Training, ...]

    @property
    def everyone(self) -> tuple[Training, ...]:
        return (*self.leavers, *self.stayers)


async def happens(
    condition: Callable[[], object], seconds: float, every: float = BUSY_SECONDS
) -> bool:
    for _ in range(round(seconds / every)):
        if condition():
            return True
        await asyncio.sleep(every)
    return False


def _change(cluster: "Cluster") -> Change | None:
    """The one that the coordinator carries out now."""
    return None if cluster.keeper.shell is None else cluster.keeper.shell.state.change


async def next_parting(cluster: "Cluster") -> Parting | None:
    """The next switch at which somebody leaves, and others stay."""

    def published() -> Change | None:
        change = _change(cluster)
        if change is None or change.stage is not ChangeStage.SWITCHING or change.joiners:
            return None
        return change

    if not await happens(published, ASK_WITHIN, LOOK_SECONDS / 4):
        return None
    change = published()
    assert change is not None and change.world is not None
    leavers, stayers = (
        tuple(cluster.trainings[name] for name in names if name in cluster.trainings)
        for names in (change.leavers, change.world.names)
    )
    return Parting(change, change.world.generation, leavers, stayers) if leavers else None


@contextmanager
def busy(leavers: Sequence[Training], step: int) -> Iterator[None]:
    """Their scripts are busy before this step, and do not come to the switch; they are heard."""
    for training in leavers:
        training.busy_from = step
    try:
        yield
    finally:
        for training in leavers:
            training.busy_from = None


def all_others_settled(cluster: "Cluster", parting: Parting) -> bool:
    change = _change(cluster)
    names = {training.env.member for training in parting.stayers}
    return change is not None and change.world == parting.change.world and names <= change.settled


async def completes_alone(cluster: "Cluster", parting: Parting) -> bool:
    """The news of the switch is late: a leaver alone completes a step that the others give up."""
    coordinator = cluster.keeper.process
    if coordinator is None or len(parting.leavers) > 1:
        return False
    (leaver,) = parting.leavers
    with cluster.network.held(coordinator, [t.process for t in parting.everyone]):
        return await happens(lambda: _is_alone_ahead(leaver, parting), LATE_NEWS)


def _is_alone_ahead(leaver: Training, parting: Parting) -> bool:
    steps = [training.steps_done for training in parting.stayers]
    done = max(parting.change.step, *steps)
    leaver.busy_from = done + 1  # one step more, and then it waits for the others
    return leaver.steps_done == done + 1 > max(steps)


def is_repeated(leaver: Training, parting: Parting) -> bool:
    """Whether the others are where the leaver is, in their new world."""
    return all(
        training.group.generation == parting.generation and training.steps_done == leaver.steps_done
        for training in parting.stayers
    )


def has_recovered(cluster: "Cluster", parting: Parting) -> bool:
    shell = cluster.keeper.shell
    return shell is not None and shell.state.generation > parting.generation
