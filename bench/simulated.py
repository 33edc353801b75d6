"""Simulated agents and members over real sockets, for measuring the coordinator alone.

They speak the whole protocol (handshake, heartbeats, keys of the size of gloo's, readiness,
switches) and train nothing. All of them live in one asyncio loop in this process; the coordinator
is a process of its own, or the test's. Members read a world's number, size and step off the frame
and leave the rest, and a frame that is the same for all is read once: a thousand of them decoding a
thousand entries each would measure this process instead.
"""

import asyncio
import base64
import contextlib
import functools
import json
import random
import re
from collections.abc import Callable

from midflight.errors import ConnectionLost, MidflightError, Unreachable
from midflight.protocol import messages as say
from midflight.protocol.handshake import TAG_SIZE
from midflight.protocol.wire import AsyncWire, _expand, dial

_TYPE = re.compile(rb'{"type":"(\w+)"')
_GENERATION = re.compile(rb'"generation":(\d+)')
_NAME = re.compile(rb'{"name":"(\w+)"')
_STEP = re.compile(rb'"step":(\d+)}}$')
REDIAL_SECONDS = 0.5
AGENT_BEAT_SECONDS = 0.25
KEY_BYTES = 154  # of gloo's key of one member
KEY_OWN_BYTES = 16  # of them, which tell it from other members' keys: no compression removes them
BEAT = b'{"type":"Beat'  # and its answer


class Traffic:
    """What has travelled between the coordinator and all members, with lengths and MACs.

    Heartbeats are left out: how many there are depends on how long the rest takes.
    """

    messages = 0
    size = 0  # bytes

    @classmethod
    def watch(cls, wire: AsyncWire) -> None:
        protection = wire.protection
        seal, received = protection.seal, protection._received
        assert received is not None

        def counted_seal(frame: bytes) -> bytes:
            sealed = seal(frame)
            cls._count(frame[4:], len(sealed))
            return sealed

        def counted_open(sealed: bytes) -> bytes:
            cls._count(sealed, 4 + len(sealed))
            body = sealed[:-TAG_SIZE]
            received.check(body, sealed[-TAG_SIZE:])
            return _expanded(body)

        protection.seal = counted_seal  # type: ignore[method-assign]
        protection.open = counted_open  # type: ignore[method-assign]

    @classmethod
    def _count(cls, body: bytes, size: int) -> None:
        if not body.startswith(BEAT):
            cls.messages += 1
            cls.size += size


_expanded = functools.lru_cache(maxsize=8)(_expand)


@functools.lru_cache(maxsize=8)
def _ranks(body: bytes) -> dict[bytes, int]:
    return {name: rank for rank, name in enumerate(_NAME.findall(body))}


async def _dial(address: str, role: str, name: str, secret: bytes) -> AsyncWire:
    """Again and again, as real ones do."""
    while True:
        with contextlib.suppress(Unreachable, ConnectionLost):
            return await dial(address, role, name, secret)
        await asyncio.sleep(REDIAL_SECONDS)


class SimulatedMember:
    def __init__(
        self, name: str, address: str, secret: bytes, exited: Callable[[int], None]
    ) -> None:
        self._name = name
        self._address = address
        self._secret = secret
        self._exited = exited
        self._step = 0
        self._beat_seconds = say.BeatHeard().seconds
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
        self._wire = wire = await _dial(self._address, "member", self._name, self._secret)
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

    async def _beat(self, wire: AsyncWire) -> None:
        while True:
            wire.send(say.Beat(self._step, self._step, False))
            await asyncio.sleep(self._beat_seconds)

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
            case b"BeatHeard":
                self._beat_seconds = float(json.loads(body)["body"]["seconds"])
            case b"Dismiss":
                return True
            case _:
                pass
        return False

    def _ask_for_keys(self, wire: AsyncWire, generation: int, body: bytes) -> None:
        """As a group does that is being connected."""
        ranks = _ranks(body)
        own = random.randbytes(KEY_OWN_BYTES)
        value = base64.b64encode(bytes(KEY_BYTES - KEY_OWN_BYTES) + own).decode()
        wire.send(say.KeySet(generation, f"0/{ranks[self._name.encode()]}", value))
        wire.send(say.RankKeysWanted(generation, "0/", len(ranks)))


class SimulatedAgent:
    def __init__(self, name: str, slots: int, address: str, secret: bytes) -> None:
        self._name = name
        self._slots = slots
        self._address = address
        self._secret = secret
        self.members: dict[str, SimulatedMember] = {}

    async def live(self) -> None:
        wire = await _dial(self._address, "agent", self._name, self._secret)
        wire.send(say.AgentJoined(self._slots, "127.0.0.1", 1, ()))
        beats = asyncio.get_running_loop().create_task(self._beat(wire))
        with contextlib.suppress(MidflightError):
            while True:
                self._obey(wire, await wire.receive())
        beats.cancel()

    async def _beat(self, wire: AsyncWire) -> None:
        while True:
            await asyncio.sleep(AGENT_BEAT_SECONDS)
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
