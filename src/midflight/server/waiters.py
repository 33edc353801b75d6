"""Futures that end when a job changes, so that a long poll costs nothing.

A waiter looks at the state, takes a future for its job, and looks again when it ends. Both happen
in one thread, so no change falls between the two.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from midflight.backends.loop import ending


class Waiters:
    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._closed = False

    @contextmanager
    def change(self, key: str) -> Iterator[asyncio.Future[None]]:
        """A future that ends at the next change of a job; Unreachable when the server ends."""
        if self._closed:
            raise ending()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(future)
        try:
            yield future
        finally:
            future.cancel()
            self._forget(key, future)

    def wake(self, keys: Iterable[str]) -> None:
        for key in keys:
            for future in self._waiting.pop(key, ()):
                if not future.done():
                    future.set_result(None)

    def close(self) -> None:
        self._closed = True
        everyone = [future for futures in self._waiting.values() for future in futures]
        self._waiting.clear()
        for future in everyone:
            if not future.done():
                future.set_exception(ending())

    def _forget(self, key: str, future: asyncio.Future[None]) -> None:
        if (futures := self._waiting.get(key)) is not None:
            futures.discard(future)
            if not futures:
                del self._waiting[key]
