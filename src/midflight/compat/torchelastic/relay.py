"""The place that never moves: members and the agent of this node dial it, wherever the
coordinator is.

It passes bytes on to the coordinator of the moment, and looks into none of them: both ends prove
to each other who they are. When the coordinator dies, its connections end here too, and whoever
dials again is connected with the next one. A connection is a stranger's until the coordinator has
answered it; there is room for so many strangers, and no more.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial

from midflight import async_timeout
from midflight.compat.torchelastic.probe import Answer, Line, call
from midflight.coordinator.admission import Stranger, Strangers, answer_at, most_strangers
from midflight.protocol.wire import tune

LOOPBACK = "127.0.0.1"
_PATIENCE = 2.0
_CHUNK = 1 << 16


class Seat:
    """Where the coordinator is, as far as this node knows."""

    def __init__(self) -> None:
        self.address: str | None = None
        self._known = asyncio.Event()
        self._doubted = asyncio.Event()

    def take(self, address: str) -> None:
        self.address = address
        self._doubted.clear()
        self._known.set()

    def doubt(self, address: str) -> None:
        """A connection to it has ended, or could not be made."""
        if address == self.address:
            self._doubted.set()

    def lose(self) -> None:
        """It is not there any more, and nobody knows another."""
        self.address = None
        self._known.clear()

    async def doubted(self) -> None:
        await self._doubted.wait()

    async def known(self) -> str:
        while self.address is None:
            await self._known.wait()
        return self.address


class Relay:
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._strangers = Strangers(most_strangers(0) // 2)  # each has a line to the coordinator
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        """HOST:PORT, for this machine only."""
        listener = socket.create_server((LOOPBACK, 0))
        self._server = await answer_at(listener, self._serve)
        return f"{LOOPBACK}:{listener.getsockname()[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time()
        stranger = self._strangers.admit(LOOPBACK, now, writer.transport.abort)
        with contextlib.suppress(asyncio.CancelledError):  # at the end, wherever it stands
            try:
                if stranger is not None and (line := await self._line()) is not None:
                    await self._pass_on(Line(reader, writer, b""), line, stranger)
            finally:
                if stranger is not None:
                    self._strangers.leave(stranger)
                writer.transport.abort()

    async def _line(self) -> Line | None:
        try:
            async with async_timeout.timeout(_PATIENCE):
                address = await self._seat.known()
        except TimeoutError:
            return None
        seen = await call(address, _PATIENCE)
        if seen.answer is not Answer.COORDINATOR:
            self._seat.doubt(address)
        return seen.line

    async def _pass_on(self, here: Line, there: Line, stranger: Stranger) -> None:
        tune(here.writer.get_extra_info("socket"))
        address = self._seat.address
        here.writer.write(there.opening)
        up = asyncio.create_task(_copy(here.reader, there.writer))
        known = partial(self._strangers.leave, stranger)
        down = asyncio.create_task(_copy(there.reader, here.writer, known))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down.done() and not up.done() and address is not None:
                self._seat.doubt(address)
            await asyncio.wait({up, down}, timeout=_PATIENCE)  # what is still on its way
        finally:
            up.cancel()
            down.cancel()
            there.writer.transport.abort()


async def _copy(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    passed: Callable[[], None] = lambda: None,
) -> None:
    """`passed` is called whenever something has arrived."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            passed()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
