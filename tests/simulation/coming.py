"""A world on its way: the real code, in a task in the place of its thread."""

import asyncio
from collections.abc import Callable
from typing import Any

from midflight.protocol.world import World
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.driver import block
from midflight.runtime.membership.next_world import Coming, Giver
from midflight.runtime.state.layout import Layout, Snapshot
from midflight.runtime.state.transfer import LIMIT
from tests.simulation import blocking
from tests.simulation.group import SimGroup


class SimComing(Coming):
    def __init__(self, world: World, name: str, backend: str, joiners: tuple[str, ...]) -> None:
        super().__init__(world, name, backend, joiners)
        done: Any = blocking.Event()
        self._done = done
        self._task: asyncio.Task[None] | None = None

    def start(self, line: KeyLine, giver: Giver, then: Callable[[Coming, str], None]) -> None:
        work = blocking.run(lambda: self._run(line, giver, then))
        self._task = asyncio.get_running_loop().create_task(work)

    async def wait(self) -> Group:
        wait = super().wait
        return await blocking.run(lambda: block(wait()))


class SimTransfer:
    """In the place of `midflight.runtime.state.transfer`."""

    LIMIT = LIMIT

    @staticmethod
    def send(group: SimGroup, target: int, snapshot: Snapshot) -> None:
        blocking.wait(group.transfer(group.rank, target, snapshot))

    @staticmethod
    def receive(group: SimGroup, source: int, *_: object, **__: object) -> Snapshot:
        snapshot: Snapshot = blocking.wait(group.transfer(source, group.rank, None))
        return snapshot

    @staticmethod
    def send_layout(group: SimGroup, joiner: int, layout: Layout) -> None:
        blocking.wait(group.meet(f"layout {joiner}", (group.rank, joiner), layout))

    @staticmethod
    def receive_layout(group: SimGroup, source: int) -> Layout:
        ranks = (source, group.rank)
        layout: Layout = blocking.wait(group.meet(f"layout {group.rank}", ranks))[0]
        return layout
