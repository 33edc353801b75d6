"""Being told when a process ends that need not be a child.

The kernel's handles of processes do it where there are some (Linux since 5.3); elsewhere, or when
there are no file descriptors left for them, processes are looked at now and then.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from midflight.backends.local.identity import is_same
from midflight.backoff import LOOK_RARELY


@dataclass(frozen=True)
class _Watched:
    pid: int
    started: str
    ended: Callable[[], None]
    handle: int  # -1: it is looked at


class Watch:
    def __init__(self, handles: bool = True) -> None:
        self._handles = handles and hasattr(os, "pidfd_open")
        self._table: dict[str, _Watched] = {}
        self._looking: asyncio.TimerHandle | None = None

    def add(self, name: str, pid: int, started: str, ended: Callable[[], None]) -> None:
        """`ended` is called once, soon if the process has ended already. A name counts once."""
        old = self._table.get(name)
        if old is not None and (old.pid, old.started) == (pid, started):
            return
        self.drop(name)
        watched = _Watched(pid, started, ended, self._open(pid))
        self._table[name] = watched
        loop = asyncio.get_running_loop()
        if not is_same(pid, started):  # asked after the handle was taken: it is this one, or gone
            loop.call_soon(self._has_ended, name, watched)
        elif watched.handle >= 0:
            loop.add_reader(watched.handle, self._has_ended, name, watched)
        elif self._looking is None:
            self._looking = loop.call_later(LOOK_RARELY, self._look)

    def drop(self, name: str) -> None:
        watched = self._table.pop(name, None)
        if watched is not None and watched.handle >= 0:
            asyncio.get_running_loop().remove_reader(watched.handle)
            os.close(watched.handle)

    def close(self) -> None:
        for name in list(self._table):
            self.drop(name)
        if self._looking is not None:
            self._looking.cancel()

    def _open(self, pid: int) -> int:
        try:
            return os.pidfd_open(pid) if self._handles else -1
        except OSError:
            return -1

    def _has_ended(self, name: str, watched: _Watched) -> None:
        if self._table.get(name) is watched:
            self.drop(name)
            watched.ended()

    def _look(self) -> None:
        self._looking = None
        looked_at = [(n, w) for n, w in self._table.items() if w.handle < 0]
        gone = [(n, w) for n, w in looked_at if not is_same(w.pid, w.started)]
        if len(gone) < len(looked_at):
            self._looking = asyncio.get_running_loop().call_later(LOOK_RARELY, self._look)
        for name, watched in gone:
            self._has_ended(name, watched)
