"""Simulated agents and members over real sockets, for measuring the coordinator alone.

They speak the whole protocol (handshake, heartbeats, keys of the size of gloo's, readiness,
switches) and train nothing. All of them live in one asyncio loop in this process; the coordinator
is a process of its own, or the test's. Members read a world's number, size and step off the frame
and leave the rest: a thousand of them decoding a thousand entries each would measure this process
instead. `Traffic` counts the bytes that all of them have received and sent, as they travel.
"""

import asyncio
import base64
import contextlib
import random
import re
from collections.abc import Callable

from midflight.errors import ConnectionLost, MidflightError, Unreachable
from midflight.protocol import messages as say
from midflight.protocol.wire import AsyncWire, dial

_TYPE = re.compile(rb'{"type":"(\w+)"')
_GENERATION = re.compile(rb'"generation":(\d+)')
_NAME = re.compile(rb'{"name":"(\w+)"')
_STEP = re.compile(rb'"step":(\d+)}}$')
REDIAL_SECONDS = 0.5
KEY_BYTES = 154  # of gloo's key of one member
BEAT_SECONDS = 0.5  # slower than real members: the simulation shares the cores with its subject


class Traffic:
    """What has travelled between the coordinator and all of its peers, with lengths and MACs."""

    received = 0
    sent = 0

    @classmethod
    def watch(cls, wire: AsyncWire) -> None:
        reader, writer = wire._reader, wire._writer
        read, write = reader.readexactly, writer.write

        async def counted_read(count: int) -> bytes:
            cls.received += count
            return await read(count)

        def counted_write(data: bytes) -> None:
            cls.sent += len(data)
            write(data)

        reader.readexactly = counted_read  # type: ignore[method-assign, assignment]
        writer.write = counted_write  # type: ignore[method-assign, assignment]


class SimulatedMember:
    def __init__(
        self, name: str, address: str, secret: bytes, exited: Callable[[int], None]
    ) -> None:
        self._name = name
        self._address = address
        self._secret = secret
        self._exited = exited
        self._step = 0
        self._then = b""  # what the keys are wanted for
        self._wire: AsyncWire | None = None
        self.task = asyncio.get_running_loop().create_task(self._live())

    def die(self) -> None:
        """As if killed: the connection closes, and the agent reports it."""
        if self._wire is not None:
            self._wire.abort()
        self.task.cancel()
        self._exited(-9)

    async def _live(self) -> None:
        self._wire = wire = await self._dial()
        Traffic.watch(wire)
        wire.send(say.MemberJoined(1, 0, 0, ""))
        beats = asyncio.get_running_loop().create_task(self._beat(wire))
        try:
            while True:
                if self._answer(wire, await wire.receive_body()):
                    break
        except MidflightError:
            return
        finally:
            beats.cancel()
        wire.close()
        self._exited(0)

    async def _dial(self) -> AsyncWire:
        """Again and again, as a real member does."""
        while True:
            with contextlib.suppress(Unreachable, ConnectionLost):
                return await dial(self._address, "member", self._name, self._secret)
            await asyncio.sleep(REDIAL_SECONDS)

    async def _beat(self, wire: AsyncWire) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            wire.send(say.Beat(self._step, self._step, False))

    def _answer(self, wire: AsyncWire, body: bytes) -> bool:
        kind = _TYPE.match(body)
        generation = _GENERATION.search(body)
        world = int(generation[1]) if generation else 0
        match kind[1] if kind else b"":
            case b"Form" | b"Prepare":
                self._then = bytes(kind[1]) if kind else b""
                self._ask_for_keys(wire, world, body)
            case b"RankKeys":
                if self._then == b"Form":
                    wire.send(say.MemberSettled(world, self._step))
                else:
                    wire.send(say.MemberReady(world, self._step, self._step))
            case b"Switch":
                step = _STEP.search(body)
                self._step = int(step[1]) if step else self._step
                wire.send(say.MemberSettled(world, self._step))
            case b"Dismiss":
                return True
            case _:
                pass
        return False

    def _ask_for_keys(self, wire: AsyncWire, generation: int, body: bytes) -> None:
        """As a group does that is being connected."""
        names = _NAME.findall(body)
        rank, size = names.index(self._name.encode()), len(names)
        value = base64.b64encode(bytes(KEY_BYTES - 16) + random.randbytes(16)).decode()
        wire.send(say.KeySet(generation, f"0/{rank}", value))
        wire.send(say.RankKeysWanted(generation, "0/", size))


class SimulatedAgent:
    def __init__(self, name: str, slots: int, address: str, secret: bytes) -> None:
        self._name = name
        self._slots = slots
        self._address = address
        self._secret = secret
        self.members: dict[str, SimulatedMember] = {}

    async def live(self) -> None:
        wire = await dial(self._address, "agent", self._name, self._secret)
        wire.send(say.AgentJoined(self._slots, "127.0.0.1", 1, ()))
        beats = asyncio.get_running_loop().create_task(self._beat(wire))
        with contextlib.suppress(MidflightError):
            while True:
                self._obey(wire, await wire.receive())
        beats.cancel()

    async def _beat(self, wire: AsyncWire) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            wire.send(say.AgentBeat())

    def _obey(self, wire: AsyncWire, message: object) -> None:
        match message:
            case say.StartMember():
                name = message.member
                wire.send(say.MemberStarted(name, 1, True))
                self.members[name] = SimulatedMember(
                    name, self._address, self._secret, lambda code: self._exit(wire, name, code)
                )
            case say.StopMember(member, _):
                if member in self.members:
                    self.members[member].die()
            case say.FindPort():
                wire.send(say.PortFound(29500))
            case say.ProbeMember(member):
                wire.send(say.MemberProbed(member, "running"))
            case say.Shutdown():
                wire.close()
            case _:
                pass

    def _exit(self, wire: AsyncWire, member: str, code: int) -> None:
        if self.members.pop(member, None) is not None:
            wire.send(say.MemberExited(member, code, ""))
