"""A script that never calls Midflight: it reads what torchrun would tell it, trains, and ends.

Its processes meet where MASTER_ADDR and MASTER_PORT say, take the last checkpoint up, and train in
collectives. Whoever finds a connection broken raises after a moment, or hangs, as some libraries
do. Nobody dials in: the coordinator hears only how processes end, and restarts all of them.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from midflight.errors import WorldChanged
from midflight.protocol.dialect import OWN, Dialect
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import Member, World
from tests.simulation.group import LOOK_SECONDS, SimGroup
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SHARE = 0.2  # of all seeds
MEET_SECONDS = 40.0  # then the script raises; torch waits for minutes
FIRST_ROOM = 1_000_000  # rooms are numbered like generations, which begin at 1


@dataclass(frozen=True)
class Habits:
    """What a seed decides about such a script, and about the rules by which it runs."""

    dialect: Dialect
    hangs: bool  # when a connection breaks; else it raises
    end_seconds: float  # it takes at SIGTERM; 0: it has no handler
    last_seconds: float  # at the most, which each of them takes after the last step


def choose_habits(rng: random.Random) -> Habits | None:
    """None: the script calls Midflight."""
    if rng.random() >= SHARE:
        return None
    rules = (
        OWN,
        OWN,
        Dialect(max_restarts=rng.choice((0, 2, 5, 100)), last_call=rng.choice((0.5, 3.0))),
        Dialect(max_restarts=rng.choice((0, 3, 3)), last_call=1.0, hosts_by_name=True),
        Dialect(fixed_size=True),
    )
    hangs, end_seconds = rng.random() < 0.4, rng.choice((0.0, 0.0, 1.0, 5.0))
    return Habits(rng.choice(rules), hangs, end_seconds, rng.choice((0.5, 1.0, 30.0)))


@dataclass
class _Room:
    """Where the processes of one start meet: rank 0 has opened it."""

    host: Process
    world: World
    local_ranks: dict[tuple[str, int], int] = field(default_factory=dict)


class Rendezvous:
    """What torch does at MASTER_ADDR:MASTER_PORT, and the checkpoint."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._rooms: dict[tuple[str, str], _Room] = {}
        self._count = 0
        self._last_port = 20_000
        self.checkpoint = 0  # steps

    def free_port(self) -> int:
        self._last_port += 1
        return self._last_port

    async def meet(self, variables: Mapping[str, str], process: Process) -> SimGroup:
        where = variables["MASTER_ADDR"], variables["MASTER_PORT"]
        rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        if rank == 0:
            self._open(where, size, process)
        while not self._is_open(where, process):  # noqa: ASYNC110 - until somebody listens there
            await asyncio.sleep(LOOK_SECONDS)
        room = self._rooms[where]
        self._check(room, variables, process)
        fabric = self._cluster.fabric
        group = SimGroup(fabric, process, room.world, f"rank {rank}")
        await group.meet_all(None)
        return group

    def _open(self, where: tuple[str, str], size: int, process: Process) -> None:
        if where[0] != process.host:
            self._find(f"rank 0 is on {process.host}, and the others look for it on {where[0]}")
        self._count += 1
        members = tuple(Member(f"rank {rank}", "", 0, "") for rank in range(size))
        self._rooms[where] = _Room(process, World(FIRST_ROOM + self._count, members))

    def _is_open(self, where: tuple[str, str], process: Process) -> bool:
        room = self._rooms.get(where)
        if room is None or not room.host.alive or room.host.stopped:
            return False
        return self._cluster.network.reachable(process.host, room.host.host)

    def _check(self, room: _Room, variables: Mapping[str, str], process: Process) -> None:
        rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        if size != room.world.size:
            self._find(f"{process.name} is one of {size} where {room.world.size} meet")
        seat = process.host, int(variables["LOCAL_RANK"])
        if room.local_ranks.setdefault(seat, rank) != rank:
            self._find(f"two processes are number {seat[1]} on {seat[0]}")

    def _find(self, text: str) -> None:
        self._cluster.witness.find(text)


class PlainScript:
    """One process of it."""

    def __init__(
        self, variables: Mapping[str, str], env: WorkerEnv, process: Process, cluster: "Cluster"
    ) -> None:
        assert cluster.habits is not None
        self._variables = variables
        self._name = env.member
        self._cluster = cluster
        self._habits = cluster.habits
        self._rng = random.Random(f"{env.member} {cluster.fabric.rng.random()}")
        self._process = process
        if self._habits.end_seconds:
            process.on_terminate = self._end_late

    def _end_late(self) -> None:
        asyncio.get_running_loop().call_later(self._habits.end_seconds, self._process.end, -15)

    async def run(self) -> int:
        """The exit code."""
        script, rendezvous = self._cluster.script, self._cluster.rendezvous
        await self._pass(script.startup_seconds)
        try:
            async with asyncio.timeout(MEET_SECONDS):
                group = await rendezvous.meet(self._variables, self._process)
            await self._train(group)
        except TimeoutError:
            self._cluster.witness.say(f"{self._name} has met nobody")
            return 1
        except WorldChanged:
            await self._pass(0.5)
            if self._habits.hangs:
                await asyncio.Event().wait()
            return 1
        await asyncio.sleep(self._habits.last_seconds * self._rng.random())
        return 0

    async def _train(self, group: SimGroup) -> None:
        rendezvous, witness = self._cluster.rendezvous, self._cluster.witness
        done = int((await group.meet_all(rendezvous.checkpoint))[0])
        while done < self._cluster.steps_wanted:
            await self._pass(self._cluster.script.step_seconds)
            await group.meet_all(None)
            done += 1
            if group.rank == 0:
                rendezvous.checkpoint = done
                witness.trained(done)

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._rng.uniform(0.8, 1.2))
