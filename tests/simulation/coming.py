"""A world on its way, as `runtime.coming` has it: a task in the place of its thread."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from midflight.deadlines import CONNECT
from midflight.errors import MidflightError, WorldChanged
from midflight.protocol.world import World
from midflight.runtime.membership.next_world import POLL_SECONDS
from tests.simulation.group import SimGroup
from tests.simulation.link import SimLink


class Giver(Protocol):
    def ask_for_layout(self) -> None: ...
    async def layout_made(self) -> None: ...


class SimComing:
    """In the place of `midflight.runtime.coming.Coming`."""

    def __init__(self, group: SimGroup, joiners: tuple[str, ...]) -> None:
        self.group = group
        self.world: World = group.world
        self.prepared = None
        self._joiners = [group.world.rank(joiner) for joiner in joiners]
        self._done = asyncio.Event()
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def generation(self) -> int:
        return self.world.generation

    @property
    def connected(self) -> bool:
        return self._done.is_set() and self._error is None

    def start(self, line: SimLink, giver: Giver, then: Callable[["SimComing", str], None]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(line, giver, then))

    async def _run(
        self, line: SimLink, giver: Giver, then: Callable[["SimComing", str], None]
    ) -> None:
        try:
            await self._connect(line, giver)
        except MidflightError as error:
            self._error = error
            self.group.cut()
        self._done.set()
        then(self, "" if self._error is None else str(self._error))

    async def _connect(self, line: SimLink, giver: Giver) -> None:
        group = self.group
        source = next(rank for rank in range(group.size) if rank not in self._joiners)
        if self._joiners and group.rank == source:
            giver.ask_for_layout()
        if group.size == 1:
            return
        await line.set_key(self.generation, f"rank/{group.rank}", "here")
        wanted = [f"rank/{rank}" for rank in range(group.size)]
        await line.want_keys(self.generation, wanted, CONNECT)
        await group.meet("connect", range(group.size))
        if self._joiners and group.rank in (source, *self._joiners):
            if group.rank == source:
                await giver.layout_made()
            await group.meet("layout", [source, *self._joiners])

    def cancel(self) -> None:
        self.group.cut()

    async def wait(self) -> SimGroup:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT
        while not self._done.is_set():
            if self.group.is_cut or loop.time() > deadline:
                self.cancel()
                raise WorldChanged(f"generation {self.generation} was not connected")
            await asyncio.sleep(POLL_SECONDS)
        if self._error is not None:
            raise self._error
        return self.group
