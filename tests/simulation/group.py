"""Process groups as gloo's behave: a collective needs all, and fails at a closed socket.

A member that is dead, or has cut its group, closes its connections: whoever waits for it gets an
error, if its host can be reached. One that is stopped or cut off is waited for without an end,
until somebody cuts the group. Members come out of a collective at slightly different moments, so a
death may leave a step complete on some and not on others.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from midflight.errors import WorldChanged
from midflight.protocol.world import World
from tests.simulation.loop import Process
from tests.simulation.network import Network

LOOK_SECONDS = 0.02
CHUNK_SECONDS = 0.2  # of a transfer: then it has moved on


@dataclass
class _Meeting:
    values: dict[int, Any] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Fabric:
    """All groups of a job."""

    def __init__(self, network: Network, rng: random.Random) -> None:
        self.network = network
        self.rng = rng
        self._groups: dict[int, dict[int, SimGroup]] = {}
        self._meetings: dict[tuple[int, str], _Meeting] = {}

    def add(self, group: "SimGroup") -> None:
        self._groups.setdefault(group.generation, {})[group.rank] = group

    def peer(self, generation: int, rank: int) -> "SimGroup | None":
        return self._groups[generation].get(rank)

    def meeting(self, generation: int, key: str) -> _Meeting:
        return self._meetings.setdefault((generation, key), _Meeting())


class SimGroup:
    """In the place of `midflight.runtime.group.Group`."""

    def __init__(self, fabric: Fabric, process: Process, world: World, name: str) -> None:
        self._fabric = fabric
        self._process = process
        self.world = world
        self.rank = world.rank(name)
        self.size = world.size
        self.generation = world.generation
        self.is_cut = False
        self.is_reset = False  # a connection to one of the others is gone, and nobody else
        self._count = 0
        fabric.add(self)

    def cut(self) -> None:
        self.is_cut = True

    def retire(self) -> None:
        """Its connections are closed: nobody is in it any more."""
        self.is_cut = True

    async def gather(self, value: Any, seconds: float = 0.0) -> list[Any]:
        """A collective of all: everybody's values, by rank."""
        self._count += 1
        return await self.meet(f"all {self._count}", range(self.size), value, seconds)

    async def meet(
        self, key: str, ranks: Sequence[int], value: Any = None, seconds: float = 0.0
    ) -> list[Any]:
        meeting = self._fabric.meeting(self.generation, key)
        meeting.values[self.rank] = value
        await self._gathered(meeting, ranks)
        await asyncio.sleep(seconds + self._fabric.rng.random() * LOOK_SECONDS)
        await self._gathered(meeting, ranks)
        meeting.done.add(self.rank)
        return [meeting.values[rank] for rank in ranks]

    async def transfer(
        self, key: str, ranks: Sequence[int], value: Any, seconds: float, moved: Callable[[], None]
    ) -> list[Any]:
        """From one member to another, piece by piece."""
        meeting = self._fabric.meeting(self.generation, key)
        meeting.values[self.rank] = value
        await self._gathered(meeting, ranks)
        left = seconds
        while left > 0 or not self._all_there(meeting, ranks):
            await asyncio.sleep(min(max(left, LOOK_SECONDS), CHUNK_SECONDS))
            if self._all_there(meeting, ranks):
                left -= CHUNK_SECONDS
                moved()
        meeting.done.add(self.rank)
        return [meeting.values[rank] for rank in ranks]

    async def _gathered(self, meeting: _Meeting, ranks: Sequence[int]) -> None:
        while not self._all_there(meeting, ranks):  # noqa: ASYNC110 - many things may change it
            await asyncio.sleep(LOOK_SECONDS)

    def _all_there(self, meeting: _Meeting, ranks: Sequence[int]) -> bool:
        """Whether all take part now; raises if a connection is closed."""
        if self.is_cut:
            raise WorldChanged(f"generation {self.generation} was cut")
        if self.is_reset:
            raise WorldChanged("Connection reset by peer")
        there = True
        for rank in ranks:
            if rank == self.rank or rank in meeting.done:
                continue
            peer = self._fabric.peer(self.generation, rank)
            if peer is None:
                there = False
                continue
            there = self._is_there(peer) and rank in meeting.values and there
        return there

    def _is_there(self, peer: "SimGroup") -> bool:
        process = peer._process
        if not self._fabric.network.reachable(self._process.host, process.host):
            return False
        if not process.alive or peer.is_cut:
            raise WorldChanged(f"Connection closed by peer {peer.rank}")
        return not process.stopped
