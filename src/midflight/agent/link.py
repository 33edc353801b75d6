"""The agent's line to the coordinator: dials, beats, and dials again when it breaks.

To the rest of the agent a broken line is invisible: `say` always works, and what cannot be sent
now is sent after the reconnect. Only if nobody answers at all, if the first answer is a refusal,
or if the coordinator stays away for too long and no member is left does `run` end, with an error
that says so. Members are never taken down because nobody answers: those of a whole world train on,
and the others give up by themselves.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NoReturn

from midflight import async_timeout, backoff
from midflight.agent.outbox import Outbox
from midflight.agent.settings import Settings
from midflight.deadlines import AGENT_BEAT, DIAL, LINE_SILENCE
from midflight.errors import ConnectionLost, MidflightError, ProtocolError, Unreachable, UsageError
from midflight.protocol.messages import AgentBeat, AgentBeatHeard, Output
from midflight.protocol.wire import AsyncWire, dial


class Link:
    def __init__(
        self,
        settings: Settings,
        greet: Callable[[AsyncWire], list[object]],
        handle: Callable[[object], None],
        is_needed: Callable[[], bool],
        log: logging.Logger,
    ) -> None:
        """`greet` gives the first words on each new connection; `handle` gets what is heard.

        While `is_needed`, a coordinator that was lost is dialled for ever.
        """
        self._settings = settings
        self._greet = greet
        self._handle = handle
        self._is_needed = is_needed
        self._log = log
        self._outbox = Outbox()
        self._wire: AsyncWire | None = None
        self._more = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._wire is not None

    def say(self, message: object) -> None:
        """Send as soon as possible. Output may take its time; the rest goes out at once."""
        self._outbox.add(message)
        self._more.set()
        if self._wire is not None and not isinstance(message, Output):
            while self._outbox and not self._wire.overfull:
                self._wire.send(self._outbox.take())

    async def run(self) -> NoReturn:
        wire = await self._dial_first()
        while True:
            try:
                await self._serve(wire)
            except (ConnectionLost, ProtocolError) as error:
                self._log.warning("lost the connection to the coordinator: %s; reconnecting", error)
            wire = await self._dial_again()
            self._log.warning("the coordinator is back")

    async def finish(self, patience: float = 2.0) -> None:
        """Get the last words out, now that `run` has been cancelled."""
        if self._wire is None:
            return
        with contextlib.suppress(TimeoutError, ConnectionLost):
            async with async_timeout.timeout(patience):
                while self._outbox:
                    self._wire.send(self._outbox.take())
                await self._wire.finish()
        self._wire.abort()

    async def _dial_first(self) -> AsyncWire:
        try:
            return await self._dial(self._settings.join_timeout)
        except Unreachable as error:
            raise UsageError(f"{error}; check --join, and that the run is there") from None

    async def _dial_again(self) -> AsyncWire:
        patience = self._settings.reconnect_timeout
        try:
            return await self._dial(patience, insist=True)
        except Unreachable as error:
            raise Unreachable(f"gave up: {error}, and no member is left here") from None

    async def _dial(self, patience: float, insist: bool = False) -> AsyncWire:
        """Try until somebody answers; a refusal is an answer, unless we `insist`.

        An agent that insists outlives its members, whatever its patience.
        """
        settings = self._settings
        deadline = time.monotonic() + patience
        pauses = backoff.pauses(*backoff.REDIAL)
        while True:
            where = settings.coordinator
            try:
                async with async_timeout.timeout(DIAL):
                    return await dial(where, "agent", settings.name, settings.secret)
            except ProtocolError as error:
                if not insist:
                    raise
                self._log.info("%s refused: %s", where, error)
            except (MidflightError, TimeoutError) as error:
                self._log.info("no coordinator yet: %s", str(error) or "no answer")
            left = deadline - time.monotonic()
            if left <= 0 and not (insist and self._is_needed()):
                raise Unreachable(f"no coordinator at {where} within {patience:g} s")
            pause = next(pauses)
            await asyncio.sleep(min(pause, left) if left > 0 else pause)

    async def _serve(self, wire: AsyncWire) -> None:
        for message in self._greet(wire):
            wire.send(message)
        self._outbox.reconnected()
        self._wire = wire
        self._more.set()
        helpers = [asyncio.create_task(self._beat(wire)), asyncio.create_task(self._pump(wire))]
        try:
            while True:
                message = await self._hear(wire)
                if isinstance(message, AgentBeatHeard):
                    self._outbox.beat_heard()
                else:
                    self._handle(message)
        except MidflightError:
            self._wire = None
            wire.abort()
            raise
        finally:
            for helper in helpers:
                helper.cancel()

    async def _hear(self, wire: AsyncWire) -> object:
        try:
            async with async_timeout.timeout(LINE_SILENCE):
                return await wire.receive()
        except TimeoutError:
            raise ConnectionLost(f"no message for {LINE_SILENCE:g} s") from None

    async def _beat(self, wire: AsyncWire) -> None:
        while True:
            wire.send(AgentBeat())
            self._outbox.beat_sent()
            await asyncio.sleep(AGENT_BEAT)

    async def _pump(self, wire: AsyncWire) -> None:
        """Send what is waiting, no faster than the coordinator reads."""
        with contextlib.suppress(ConnectionLost):  # the reader sees it too, and says so
            while True:
                await self._more.wait()
                self._more.clear()
                while self._outbox:
                    wire.send(self._outbox.take())
                    await wire.flush()
