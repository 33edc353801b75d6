"""Simulated agents and members over real sockets, for measuring the coordinator alone.

They speak the whole protocol (handshake, heartbeats, readiness, switches) and train nothing. All
of them live in one asyncio loop in this process; the coordinator is a process of its own. Members
read a world's number and step off the frame and leave the rest: a thousand of them decoding a
thousand entries each would measure this process instead.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable

from midflight.errors import ConnectionLost, MidflightError, Unreachable
from midflight.protocol import messages as say
from midflight.protocol.wire import AsyncWire, dial

_TYPE = re.compile(rb'{"type":"(\w+)"')
_GENERATION = re.compile(rb'"generation":(\d+)')
_STEP = re.compile(rb'"step":(\d+)}}$')
REDIAL_SECONDS = 0.5
BEAT_SECONDS = 0.5  # slower than real members: the simulation shares the cores with its subject


class SimulatedMember:
    def __init__(
        self, name: str, address: str, secret: bytes, exited: Callable[[int], None]
    ) -> None:
        self._name = name
        self._address = address
        self._secret = secret
        self._exited = exited
        self._step = 0
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
            case b"Form":
                wire.send(say.MemberSettled(world, self._step))
            case b"Prepare":
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
