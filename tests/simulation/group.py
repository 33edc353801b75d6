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
from typing import Any, TypeVar

from midflight.deadlines import CONNECT
from midflight.errors import WorldChanged
from midflight.protocol.world import World
from midflight.runtime.group.keystore import KeyLine
from tests.simulation import blocking
from tests.simulation.loop import Process
from tests.simulation.network import Network

T = TypeVar("T")
Moved = Callable[[str], None]
LOOK_SECONDS = 0.02
CHUNK_SECONDS = 0.2  # of a transfer: then it has moved on


@dataclass
class _Meeting:
    values: dict[int, Any] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


class Fabric:
    """All groups of a job."""

    def __init__(
        self, network: Network, rng: random.Random, transfer_seconds: float, moved: Moved
    ) -> None:
        """`moved` is called with a member's name when a part of a state has come or gone there."""
        self.network = network
        self.rng = rng
        self.transfer_seconds = transfer_seconds
        self.moved = moved
        self._groups: dict[int, dict[int, SimGroup]] = {}
        self._meetings: dict[tuple[int, str], _Meeting] = {}

    def add(self, group: "SimGroup") -> None:
        self._groups.setdefault(group.generation, {})[group.rank] = group

    def peer(self, generation: int, rank: int) -> "SimGroup | None":
        return self._groups[generation].get(rank)

    def meeting(self, generation: int, key: str) -> _Meeting:
        return self._meetings.setdefault((generation, key), _Meeting())


class SimGroup:
    """In the place of `midflight.runtime.group.process_group.Group`.

    What that does at once, or blocks for, is done here by code that `blocking` runs.
    """

    def __init__(
        self, fabric: Fabric, process: Process, world: World, name: str, backend: str = "gloo"
    ) -> None:
        self._fabric = fabric
        self._process = process
        self.backend = backend
        self.pg = self.control = self.waits = self
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

    def call(self, action: Callable[[], T]) -> T:
        """As `Waits` does."""
        return action()

    def connect(self, line: KeyLine) -> None:
        if self.size > 1:
            line.set_key(self.generation, f"rank/{self.rank}", "here")
            wanted = [f"rank/{rank}" for rank in range(self.size)]
            line.want_keys(self.generation, wanted, CONNECT)
            blocking.wait(self.meet("connect", range(self.size)))

    def gather(self, numbers: list[int]) -> list[list[int]]:
        return [numbers] if self.size == 1 else blocking.wait(self.meet_all(numbers))

    def broadcast_bytes(self, data: bytes, root: int) -> bytes:
        return data if self.size == 1 else bytes(blocking.wait(self.meet_all(data))[root])

    async def meet_all(self, value: Any) -> list[Any]:
        """A collective of all: everybody's values, by rank."""
        self._count += 1
        return await self.meet(f"all {self._count}", range(self.size), value)

    async def meet(self, key: str, ranks: Sequence[int], value: Any = None) -> list[Any]:
        meeting = self._fabric.meeting(self.generation, key)
        meeting.values[self.rank] = value
        await self._gathered(meeting, ranks)
        await asyncio.sleep(self._fabric.rng.random() * LOOK_SECONDS)
        await self._gathered(meeting, ranks)
        meeting.done.add(self.rank)
        return [meeting.values[rank] for rank in ranks]

    async def transfer(self, source: int, target: int, value: Any) -> Any:
        """From one member to another, piece by piece."""
        ranks = (source, target)
        meeting = self._fabric.meeting(self.generation, f"{source} to {target}")
        meeting.values[self.rank] = value
        await self._gathered(meeting, ranks)
        left = self._fabric.transfer_seconds
        while left > 0 or not self._all_there(meeting, ranks):
            await asyncio.sleep(min(max(left, LOOK_SECONDS), CHUNK_SECONDS))
            if self._all_there(meeting, ranks):
                left -= CHUNK_SECONDS
                self._fabric.moved(self.world.names[self.rank])
        meeting.done.add(self.rank)
        return meeting.values[source]

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
