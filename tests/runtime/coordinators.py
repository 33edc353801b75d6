"""Coordinators that only listen, on a real socket in a thread of their own."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from midflight.errors import MidflightError
from midflight.protocol.messages import Beat, BeatHeard
from midflight.protocol.wire import AsyncWire, accept

OURS, THEIRS = b"the secret of this run", b"the secret of another"
PATIENCE = 20.0
Word = TypeVar("Word")


class Coordinators:
    """One address; at first its coordinator knows one secret, after its death another's does."""

    def __init__(self, *secrets: bytes, hangs_up: bool = True) -> None:
        """`hangs_up`: each connection ends after its first word."""
        self._secrets = list(secrets)
        self._hangs_up = hangs_up
        self.met: queue.Queue[object] = queue.Queue()
        self.address = ""
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0) as server:
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._ready.set()
            await self._stop.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = AsyncWire(reader, writer)
        try:
            await accept(wire, self._secrets.pop(0) if self._secrets[1:] else self._secrets[0])
            self.met.put(await wire.receive())
            while not self._hangs_up:
                message = await wire.receive()
                if isinstance(message, Beat):
                    wire.send(BeatHeard())
                else:
                    self.met.put(message)
        except MidflightError as error:
            self.met.put(error)
        finally:
            wire.close()

    @contextmanager
    def serving(self) -> Iterator["Coordinators"]:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        yield self
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)

    def first(self, kind: type[Word]) -> Word:
        """The next such word; others before it are left out."""
        while True:
            word = self.met.get(timeout=PATIENCE)
            if isinstance(word, kind):
                return word
