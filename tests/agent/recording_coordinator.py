"""A coordinator that decides nothing: it lets agents in, answers beats and keeps what it hears.

`Stage` puts one beside a real agent process. Tests say what a coordinator would say and wait for
what the agent answers; a process's end is awaited through its pidfd, so nothing here sleeps.
"""

import asyncio
import contextlib
import functools
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from midflight.errors import ConnectionLost, ProtocolError
from midflight.protocol.messages import AgentBeat, AgentBeatHeard, AgentJoined, Output, StartMember
from midflight.protocol.wire import AsyncWire, accept

SOURCE = Path(__file__).resolve().parents[2] / "src"
SECRET = b"the secret of the run"
PATIENCE = 20.0
T = TypeVar("T")


class RecordingCoordinator:
    def __init__(self, beats: bool = True) -> None:
        self.answers_beats = beats
        self.heard: list[object] = []
        self.beats = 0
        self.port = 0
        self._wires: list[AsyncWire] = []
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Condition()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def listen(self) -> None:
        """Again on the same port, if it has listened before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def vanish(self) -> None:
        """Close all connections and the port, as a killed coordinator does."""
        assert self._server is not None
        self._server.close()
        for wire in self._wires:
            wire.abort()
        self._wires.clear()

    def say(self, message: object) -> None:
        self._wires[-1].send(message)

    async def first(self, kind: type[T], where: Callable[[T], bool] = lambda _: True) -> T:
        """The first message of a kind, as soon as it has been heard."""

        def found() -> T | None:
            return next((m for m in self.heard if isinstance(m, kind) and where(m)), None)

        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(found)
        return cast(T, found())

    async def line(self, text: str) -> None:
        """Wait for a line of output that holds this text."""
        await self.first(Output, lambda output: any(text in line for line in output.lines))

    def lines(self, member: str, stream: str = "stdout") -> list[str]:
        outputs = [m for m in self.heard if isinstance(m, Output)]
        return [
            line
            for output in outputs
            if (output.member, output.stream) == (member, stream)
            for line in output.lines
        ]

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.heard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = AsyncWire(reader, writer)
        with contextlib.suppress(ConnectionLost, ProtocolError):
            await accept(wire, SECRET)
            self._wires.append(wire)
            while True:
                await self._keep(await wire.receive(), wire)
        wire.close()

    async def _keep(self, message: object, wire: AsyncWire) -> None:
        if isinstance(message, AgentBeat):
            self.beats += 1
            if self.answers_beats:
                wire.send(AgentBeatHeard())
            return
        async with self._changed:
            self.heard.append(message)
            self._changed.notify_all()


class Stage:
    """One agent process and the coordinator it has joined."""

    def __init__(self, folder: Path, coordinator: RecordingCoordinator) -> None:
        self.folder = folder
        self.coordinator = coordinator
        self.agent: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.agent.pid

    async def exit_code(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.agent.wait()

    def script(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(self, member: str, *command: str, **environment: str) -> None:
        order = StartMember(member, 0, command, "run", 60.0, 30.0, "", environment)
        self.coordinator.say(order)


@contextlib.asynccontextmanager
async def staged(folder: Path, *options: str, **environment: str) -> AsyncIterator[Stage]:
    coordinator = RecordingCoordinator()
    await coordinator.listen()
    stage = Stage(folder, coordinator)
    stage.agent = await start_agent(folder, coordinator.address, *options, **environment)
    try:
        await coordinator.first(AgentJoined)
        yield stage
    finally:
        if stage.agent.returncode is None:
            stage.agent.kill()
        async with asyncio.timeout(PATIENCE):
            await stage.agent.communicate()
        await coordinator.vanish()


async def start_agent(
    folder: Path, address: str, *options: str, **environment: str
) -> asyncio.subprocess.Process:
    token = folder / "token"
    if not token.exists():
        token.touch(0o600)
        token.write_bytes(SECRET + b"\n")
    command = [sys.executable, "-m", "midflight.agent", "--name", "host-1", "--join", address]
    return await asyncio.create_subprocess_exec(
        *[*command, "--token-file", str(token), *options],
        cwd=folder,
        env=agent_environment(**environment),
        stderr=asyncio.subprocess.PIPE,
    )


def agent_environment(**environment: str) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    return {**own, "PYTHONPATH": str(SOURCE), **environment}


async def ended(pid: int, within: float = 5.0) -> None:
    """Wait until a process that need not be ours has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    try:
        done = await asyncio.to_thread(poll.poll, within * 1000)
    finally:
        os.close(fd)
    assert done, f"process {pid} is still there after {within:g} s"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]


def scenario(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Lets a test be a coroutine."""

    @functools.wraps(story)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(story(*arguments, **named))

    return run


def send_signal(pid: int, number: signal.Signals) -> None:
    assert pid > 1, f"{pid} is no process of this test; 0 would signal the tests themselves"
    os.kill(pid, number)
