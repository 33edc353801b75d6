"""A member's line to the coordinator without a thread: the rules are those of `runtime.link`.

When to send a heartbeat, when a connection counts as lost, when to dial again and when to give up
is decided by the classes that the real link uses; only the waiting is asyncio's.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from midflight.deadlines import LINE_SILENCE
from midflight.errors import (
    ConnectionLost,
    MidflightError,
    ProtocolError,
    Unreachable,
    WorldChanged,
)
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import BeatHeard, KeySet, KeysWanted, KeyValues
from midflight.protocol.wire import AsyncWire, dial
from midflight.runtime.membership.link import Attempts, Listener, Pulse, SaidKeys
from tests.simulation import blocking


@dataclass
class _Ticket:
    question: KeysWanted
    answer: "asyncio.Future[Sequence[str] | None]"


class SimLink:
    """In the place of `midflight.runtime.link.Link`."""

    def __init__(self, env: WorkerEnv, secret: bytes, listener: Listener) -> None:
        self._env = env
        self._secret = secret
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._wire: AsyncWire | None = None
        self._known = False
        self._tickets: dict[int, _Ticket] = {}
        self._next_ticket = 0
        self._cancelled = 0
        self._said = SaidKeys()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._wire is not None:
            self._wire.close()

    def send(self, message: object) -> bool:
        if self._wire is None or self._wire._writer.is_closing():
            return False
        self._wire.send(message)
        return True

    def say_pending(self) -> None:
        if self._wire is not None:
            self._say_all(self._listener.pending())

    async def _run(self) -> None:
        while True:
            try:
                wire = await self._dial()
            except MidflightError as error:
                self._listener.give_up(str(error))
                return
            try:
                await self._talk(wire)
            except ConnectionLost:
                pass
            except ProtocolError as error:
                self._listener.give_up(str(error))
                return
            finally:
                self._wire = None
                wire.close()

    async def _dial(self) -> AsyncWire:
        attempts = Attempts(self._env.elastic_timeout, self._known)
        while True:
            try:
                wire = await self._attempt()
                wire.send(self._listener.greeting())
                self._known = True
                return wire
            except MidflightError as error:
                need = self._listener.need()
                await asyncio.sleep(attempts.pause_after(error, need, self._loop.time()))

    async def _attempt(self) -> AsyncWire:
        env = self._env
        try:
            async with asyncio.timeout(LINE_SILENCE):
                return await dial(env.coordinator, "member", env.member, self._secret)
        except TimeoutError:
            raise Unreachable("no answer") from None

    async def _talk(self, wire: AsyncWire) -> None:
        self._wire = wire
        self._say_all(self._said.again())
        for ticket in tuple(self._tickets.values()):
            self.send(ticket.question)
        self._say_all(self._listener.pending())
        pulse = Pulse(self._loop.time())
        reader = self._loop.create_task(self._read(wire, pulse))
        try:
            while not reader.done():
                if pulse.beat_is_due(self._loop.time()):
                    self.send(self._listener.beat())
                pulse.check(self._loop.time())
                await asyncio.wait([reader], timeout=pulse.seconds_left(self._loop.time()))
            reader.result()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, MidflightError):
                await reader

    async def _read(self, wire: AsyncWire, pulse: Pulse) -> None:
        while True:
            message = await wire.receive()
            pulse.heard(message, self._loop.time())
            if isinstance(message, BeatHeard):
                continue
            if isinstance(message, KeyValues):
                ticket = self._tickets.pop(message.ticket, None)
                if ticket is not None and not ticket.answer.done():
                    ticket.answer.set_result(message.values)
                continue
            self._listener.hear(message)

    def _say_all(self, messages: Sequence[object]) -> None:
        for message in messages:
            self.send(message)

    # --- keys -------------------------------------------------------------------------------

    def set_key(self, generation: int, key: str, value: str) -> None:
        """Blocks, as `blocking` has it; so does the next."""
        blocking.wait(self._set_key(generation, key, value))

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        return blocking.wait(self._want_keys(generation, keys, timeout))

    async def _set_key(self, generation: int, key: str, value: str) -> None:
        message = KeySet(generation, key, value)
        self._said.add(message)
        deadline = self._loop.time() + LINE_SILENCE
        while not self.send(message):
            if generation <= self._cancelled or self._loop.time() > deadline:
                raise WorldChanged(f"generation {generation} was given up")
            await asyncio.sleep(0.02)

    async def _want_keys(
        self, generation: int, keys: Sequence[str], timeout: float
    ) -> Sequence[str]:
        self._next_ticket += 1
        number = self._next_ticket
        ticket = _Ticket(KeysWanted(generation, tuple(keys), number), self._loop.create_future())
        self._tickets[number] = ticket
        try:
            if generation > self._cancelled:
                self.send(ticket.question)
                async with asyncio.timeout(timeout):
                    values = await ticket.answer
                if values is not None:
                    return values
        except TimeoutError:
            pass
        finally:
            self._tickets.pop(number, None)
        raise WorldChanged(f"generation {generation} was given up")

    def cancel_keys(self, generation: int) -> None:
        self._cancelled = max(self._cancelled, generation)
        for ticket in tuple(self._tickets.values()):
            if ticket.question.generation <= self._cancelled and not ticket.answer.done():
                ticket.answer.set_result(None)
