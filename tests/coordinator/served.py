"""A real coordinator on a real socket, in the test's own event loop; only its store is a fake."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from midflight.coordinator.audit import AuditTrail
from midflight.coordinator.connections import Door
from midflight.coordinator.core.state import State, initial
from midflight.coordinator.peers import Peers
from midflight.coordinator.shell import Shell, now
from midflight.protocol import messages as say
from midflight.protocol.job import JobSpec
from midflight.protocol.wire import AsyncWire, dial

SECRET = b"the secret of this run"
PORTS = itertools.count(20_001)  # one more each time


class FakeSaving:
    """A store that can be slow, fail, or turn out to belong to another coordinator."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.errors: list[Exception] = []
        self.saved: list[State] = []

    def save(self, state: State, now: float) -> None:
        assert self.open.wait(10.0)
        if self.errors:
            raise self.errors.pop(0)
        self.saved.append(state)


class FakePrinter:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str, level: str = "info") -> None:
        self.lines.append(f"{level}: {line}")

    def output(self, *_: object) -> None:
        pass

    def ended(self, *_: object) -> None:
        pass

    def traceback(self, member: str, rank: int | None, error: str) -> None:
        self.lines.append(error)


class Served:
    def __init__(self, audit: Any = None, **spec: Any) -> None:
        job = JobSpec("job", ("python", "train.py"), **{"np": 2, "min_np": 1, "max_np": 4, **spec})
        self.saving = FakeSaving()
        self.printer = FakePrinter()
        self.shell = Shell(initial(job, now()), Peers(), self.saving, self.printer)  # type: ignore[arg-type]
        self.trail = AuditTrail("job", audit)
        self.door = Door(self.shell, SECRET, self.printer, self.trail)  # type: ignore[arg-type]
        self.address = ""
        self._wires: list[AsyncWire] = []  # a wire that nobody holds is closed
        self.wires: dict[str, AsyncWire] = {}  # the agents' ends, by name

    def said(self, text: str) -> bool:
        return any(text in line for line in self.printer.lines)

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  a decision rings no bell
                await asyncio.sleep(0.005)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of a stranger."""
        host, _, port = self.address.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def dial(self, role: str, name: str = "") -> AsyncWire:
        wire = await dial(self.address, role, name, SECRET)
        self._wires.append(wire)
        return wire

    async def agent(self, name: str, slots: int) -> AsyncWire:
        self.wires[name] = wire = await self.dial("agent", name)
        wire.send(say.AgentJoined(slots, "127.0.0.1", 4711, ()))
        return wire

    async def member(self, name: str, generation: int = 0) -> AsyncWire:
        wire = await self.dial("member", name)
        wire.send(say.MemberJoined(1, generation, 0, ""))
        return wire

    async def answers(self) -> bool:
        """Whether the coordinator still serves honest clients."""
        wire = await self.dial("client")
        wire.send(say.StatusRequested())
        reply = await asyncio.wait_for(wire.receive(), 5.0)
        wire.close()
        return isinstance(reply, say.Status)


@contextlib.asynccontextmanager
async def served(audit: Any = None, **spec: Any) -> AsyncIterator[Served]:
    it = Served(audit, **spec)
    server = await asyncio.start_server(it.door.serve, "127.0.0.1", 0, limit=1 << 17)
    it.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    work = [asyncio.create_task(it.shell.tick()), asyncio.create_task(it.shell.save())]
    try:
        yield it
    finally:
        it.saving.open.set()
        for task in work:
            task.cancel()
        server.close()
        it.trail.close()
        for wire in (*it.shell.peers.agents.values(), *it.shell.peers.members.values()):
            wire.abort()
        await asyncio.sleep(0)


async def next_of(wire: AsyncWire, kind: Any, seconds: float = 5.0) -> Any:
    """The next message of a kind; what comes before it is passed over."""
    async with asyncio.timeout(seconds):
        while True:
            message = await wire.receive()
            if isinstance(message, say.FindPort):
                wire.send(say.PortFound(next(PORTS)))
            if isinstance(message, kind):
                return message
