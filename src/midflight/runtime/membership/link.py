"""The thread that keeps a member in touch with the coordinator.

It dials, says who this is and how far it has come, sends heartbeats, and passes what it hears to
the session. When the coordinator is away, training goes on and the thread keeps dialling. Only if
the session needs an answer (`need`) and none comes within the elastic timeout does it tell the
session to give up. Nothing here touches torch.
"""

import contextlib
import io
import os
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from midflight import backoff, descriptors, terminal
from midflight.deadlines import LINE_SILENCE, MEMBER_BEAT
from midflight.errors import (
    ConnectionLost,
    FrameForged,
    HandshakeRefused,
    MidflightError,
    ProtocolError,
    Unreachable,
    WorldChanged,
)
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import (
    Beat,
    BeatHeard,
    KeyAdd,
    KeySet,
    KeysWanted,
    KeyValues,
    MemberJoined,
    RankKeys,
    RankKeysWanted,
)
from midflight.protocol.wire import SyncWire, dial_blocking


class Listener(Protocol):
    """The session, as the link sees it. All of it is called in the link's thread."""

    def greeting(self) -> MemberJoined: ...
    def beat(self) -> Beat: ...
    def pending(self) -> Sequence[object]:
        """What has to be said (again) after a reconnect, or when `say_pending` was called."""
        ...

    def need(self) -> str | None:
        """What it cannot go on without, and only a coordinator can give; None: nothing."""
        ...

    def hear(self, message: object) -> None: ...
    def give_up(self, reason: str) -> None: ...


class Link:
    def __init__(self, env: WorkerEnv, secret: bytes, listener: Listener) -> None:
        self._env = env
        self._secret = secret
        self._listener = listener
        self._wire: SyncWire | None = None
        self._sending = threading.Lock()
        self._tickets: dict[int, _Ticket] = {}
        self._next_ticket = 0
        self._cancelled = 0  # keys of generations up to this one are given up
        self._said = SaidKeys()
        # Once let in, a refusal is a stranger's, who has the coordinator's old address by now.
        self._known = False
        self.is_encrypted = False  # as the coordinator wants it
        self._closing = threading.Event()
        woken, waker = os.pipe()
        os.set_blocking(waker, False)
        self._woken, self._waker = io.FileIO(woken, "r"), io.FileIO(waker, "w")
        self._thread = threading.Thread(target=self._run, name="midflight-link", daemon=True)

    def start(self) -> None:
        descriptors.raise_limit()  # for the connections of large worlds
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        wire = self._wire
        if wire is not None:
            with contextlib.suppress(OSError):
                wire.sock.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self.say_pending()
            self._thread.join(timeout=2.0)
        if not self._thread.is_alive():
            self._waker.close()
            self._woken.close()

    def send(self, message: object) -> bool:
        """False if it could not be sent; what matters is said again after a reconnect."""
        with self._sending:
            wire = self._wire
            if wire is None:
                return False
            try:
                wire.send(message)
            except (ConnectionLost, TimeoutError):
                return False
            return True

    def say_pending(self) -> None:
        """Have the thread say at once what is pending.

        Takes no lock, so that a signal handler may call it whatever it has interrupted.
        """
        with contextlib.suppress(OSError, ValueError):  # ValueError: the link has been closed
            self._waker.write(b"!")  # a full pipe wakes it as well

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                wire = self._dial()
            except MidflightError as error:
                if not self._closing.is_set():
                    self._listener.give_up(str(error))
                return
            try:
                self._talk(wire)
            except FrameForged as error:
                terminal.say(f"warning: {error}; reconnecting to the coordinator")
            except (ConnectionLost, TimeoutError):
                pass
            except ProtocolError as error:
                self._listener.give_up(str(error))
                return
            finally:
                self._drop(wire)

    def _dial(self) -> SyncWire:
        attempts = Attempts(self._env.elastic_timeout, self._known)
        while True:
            try:
                env = self._env
                wire = dial_blocking(
                    env.coordinator, "member", env.member, self._secret, LINE_SILENCE, env.run
                )
                # Together, or what another thread says in between is in neither of the two.
                with self._sending:
                    wire.send(self._listener.greeting())
                    self._wire = wire
                self._known, self.is_encrypted = True, wire.is_encrypted
                return wire
            except MidflightError as error:
                pause = attempts.pause_after(error, self._listener.need(), time.monotonic())
                if self._closing.wait(pause):
                    raise Unreachable("the link was closed") from None

    def _talk(self, wire: SyncWire) -> None:
        self._say_all(self._said.again())
        for ticket in tuple(self._tickets.values()):
            self.send(ticket.question)
        self._say_all(self._listener.pending())
        pulse = Pulse(time.monotonic())
        with selectors.DefaultSelector() as sources:  # select() fails from descriptor 1,024 on
            sources.register(wire.sock, selectors.EVENT_READ)
            sources.register(self._woken, selectors.EVENT_READ)
            while not self._closing.is_set():
                if pulse.beat_is_due(time.monotonic()):
                    self.send(self._listener.beat())
                ready = sources.select(pulse.seconds_left(time.monotonic()))
                readable = [key.fileobj for key, _ in ready]
                if self._woken in readable:
                    self._woken.read(1 << 10)
                    self._say_all(self._listener.pending())
                if wire.sock in readable:
                    self._hear_all(wire, pulse)
                else:
                    pulse.check(time.monotonic())

    def _hear_all(self, wire: SyncWire, pulse: "Pulse") -> None:
        while True:
            message = wire.receive()
            self._hear(message)
            pulse.heard(message, time.monotonic())
            if not wire.has_more:
                return

    def _say_all(self, messages: Sequence[object]) -> None:
        for message in messages:
            self.send(message)

    def _hear(self, message: object) -> None:
        if isinstance(message, BeatHeard):
            return
        if isinstance(message, KeyValues):
            ticket = self._tickets.pop(message.ticket, None)
            if ticket is not None:
                ticket.answer(message.values)
            return
        if isinstance(message, RankKeys):
            question = RankKeysWanted(message.generation, message.prefix, len(message.values))
            for number, ticket in tuple(self._tickets.items()):  # other threads add and remove some
                if ticket.question == question:
                    self._tickets.pop(number, None)
                    ticket.answer(message.values)
            return
        self._listener.hear(message)

    def _drop(self, wire: SyncWire) -> None:
        with self._sending:
            self._wire = None
        wire.close()

    # --- keys -------------------------------------------------------------------------------

    def set_key(self, generation: int, key: str, value: str) -> None:
        message = KeySet(generation, key, value)
        self._said.add(message)
        self._ask_until_sent(message, generation)

    def _ask_until_sent(self, message: object, generation: int) -> None:
        deadline = time.monotonic() + LINE_SILENCE
        while not self.send(message):
            if generation <= self._cancelled or time.monotonic() > deadline:
                raise WorldChanged(f"generation {generation} was given up")
            self._closing.wait(0.02)

    def add_key(self, generation: int, key: str, amount: int, timeout: float) -> int:
        number = self._number()
        values = self._ask(KeyAdd(generation, key, amount, number), number, generation, timeout)
        return int(values[0])

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        number = self._number()
        return self._ask(KeysWanted(generation, tuple(keys), number), number, generation, timeout)

    def want_rank_keys(
        self, generation: int, prefix: str, size: int, timeout: float
    ) -> Sequence[str]:
        question = RankKeysWanted(generation, prefix, size)
        return self._ask(question, self._number(), generation, timeout)

    def _number(self) -> int:
        with self._sending:
            self._next_ticket += 1
            return self._next_ticket

    def _ask(self, question: object, number: int, generation: int, timeout: float) -> Sequence[str]:
        ticket = _Ticket(question, generation)
        self._tickets[number] = ticket
        try:
            if generation <= self._cancelled:
                raise WorldChanged(f"generation {generation} was given up")
            self.send(question)
            return ticket.wait(timeout)
        finally:
            self._tickets.pop(number, None)

    def cancel_keys(self, generation: int) -> None:
        """Nobody will wait for keys of this generation, or an older one, any more."""
        self._cancelled = max(self._cancelled, generation)
        for ticket in tuple(self._tickets.values()):
            if ticket.generation <= self._cancelled:
                ticket.cancel()


class SaidKeys:
    """Keys that were set: one whose line broke may not have arrived, so all are said again."""

    def __init__(self) -> None:
        self._keys: dict[tuple[int, str], KeySet] = {}

    def add(self, message: KeySet) -> None:
        """Older keys are those of worlds before this one, except for the world of now."""
        for generation, key in tuple(self._keys):
            if generation < message.generation - 1:
                self._keys.pop((generation, key), None)
        self._keys[message.generation, message.key] = message

    def again(self) -> tuple[KeySet, ...]:
        return tuple(self._keys.values())


class Absence:
    """How long one and the same thing has been needed of a coordinator that does not answer."""

    def __init__(self) -> None:
        self._need: str | None = None
        self._since = 0.0

    def seconds(self, need: str | None, now: float) -> float:
        if need != self._need:
            self._need, self._since = need, now
        return 0.0 if need is None else now - self._since


class Attempts:
    """Dialling: how long to wait before the next attempt, and when to give up."""

    def __init__(self, elastic_timeout: float, known: bool) -> None:
        """`known`: a coordinator has let this member in before, so a refusal is a stranger's."""
        self._patience = elastic_timeout
        self._known = known
        self._pauses = backoff.pauses(*backoff.REDIAL)
        self._absence = Absence()

    def pause_after(self, error: MidflightError, need: str | None, now: float) -> float:
        """Seconds until the next attempt; raises if there should be none."""
        if isinstance(error, HandshakeRefused) and not self._known:
            raise error
        if self._absence.seconds(need, now) > self._patience:
            raise Unreachable(
                f"the coordinator did not answer for {self._patience:g} s ({error})"
            ) from None
        return next(self._pauses)


class Pulse:
    """One connection: when to send a heartbeat, and when silence means that it is lost."""

    def __init__(self, now: float) -> None:
        self._heard = self._next_beat = now
        self._seconds = MEMBER_BEAT

    def beat_is_due(self, now: float) -> bool:
        if now < self._next_beat:
            return False
        self._next_beat = now + self._seconds
        return True

    def seconds_left(self, now: float) -> float:
        """Until the next heartbeat."""
        return max(0.0, self._next_beat - now)

    def heard(self, message: object, now: float) -> None:
        self._heard = now
        if isinstance(message, BeatHeard):
            self._seconds = message.seconds

    def check(self, now: float) -> None:
        """Nothing was heard just now; raises if that has been so for too long."""
        if now - self._heard > LINE_SILENCE:
            raise ConnectionLost("the coordinator has gone silent")


class _Ticket:
    def __init__(self, question: object, generation: int) -> None:
        self.question = question
        self.generation = generation
        self._done = threading.Event()
        self._values: Sequence[str] | None = None

    def answer(self, values: Sequence[str]) -> None:
        self._values = values
        self._done.set()

    def cancel(self) -> None:
        self._done.set()

    def wait(self, timeout: float) -> Sequence[str]:
        if not self._done.wait(timeout) or self._values is None:
            raise WorldChanged(f"generation {self.generation} was given up")
        return self._values
