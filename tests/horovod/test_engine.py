"""Engines of two ranks in one process, with real lines and a group that carries nothing."""

import socket
import threading
from typing import Any

from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import Work
from midflight.compat.horovod.engine.engine import Engine, Settings
from midflight.compat.horovod.engine.requests import Asked, Request, Told
from midflight.compat.horovod.engine.sets import Sets
from midflight.compat.horovod.engine.talk import Line
from midflight.compat.horovod.engine.timeline import Timeline
from midflight.protocol.wire import SyncWire
from midflight.protocol.world import Member, World
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.sockets import exempt

PATIENCE = 20.0
WORLD = World(1, (Member("m0", "h0", 0, "127.0.0.1"), Member("m1", "h0", 1, "127.0.0.1")))


class Two:
    """Rank 0 and rank 1."""

    def __init__(self) -> None:
        ends = socket.socketpair()
        for end in ends:
            exempt(end)
        self.broken: list[tuple[int, str]] = []
        self.engines = [
            self._engine(0, {1: Line(SyncWire(ends[0]), Asked)}),
            self._engine(1, {0: Line(SyncWire(ends[1]), Told)}),
        ]

    def _engine(self, rank: int, lines: dict[int, Line]) -> Engine:
        group = Group(WORLD, f"m{rank}", "gloo")

        def broke(error: Exception) -> None:
            self.broken.append((rank, str(error)))

        return Engine(group, Sets(group, None), lines, Settings(), Timeline(), broke)

    def meet(self) -> None:
        """A barrier: both have heard all that was said before."""
        works = [Work(Request("barrier", words.BARRIER), [], []) for _ in self.engines]
        for engine, work in zip(self.engines, works, strict=True):
            engine.submit(work)
            engine.flush()
        assert all(work.done.wait(PATIENCE) for work in works)


def ended(engine: Any) -> bool:
    thread: threading.Thread = engine._thread
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_a_rank_that_goes_on_to_the_next_world_first_breaks_nobody() -> None:
    for first, second in ((0, 1), (1, 0)):
        two = Two()
        two.meet()
        two.engines[first].retire()
        two.engines[first].close()
        assert ended(two.engines[second])
        two.engines[second].close()
        assert two.broken == []


def test_a_rank_that_dies_breaks_the_others() -> None:
    two = Two()
    two.meet()
    two.engines[0]._lines[1].sock.shutdown(socket.SHUT_RDWR)
    assert all(ended(engine) for engine in two.engines)
    assert {rank for rank, _ in two.broken} == {0, 1}
    for engine in two.engines:
        engine.close()
