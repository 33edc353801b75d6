"""Programs that others run in a container, `kubectl exec`: their streams, and how they ended.

A program whose caller goes away is killed. The caller speaks WebSocket or SPDY; the API server
passes either on as it comes.
"""

import asyncio
import fcntl
import json
import os
import signal
import struct
import termios
from dataclasses import dataclass

from tests.kubernetes.plane import spawning, spdy, websocket
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, Remote
from tests.kubernetes.plane.descriptors import read
from tests.kubernetes.plane.spawning import Program, Streams

_CHUNK = 32768
_DRAIN = 2.0  # seconds that output may take after the program has ended


@dataclass(frozen=True)
class Asked:
    """A program to run beside a container's own, and which of its streams the caller wants."""

    command: tuple[str, ...]
    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool

    def channels(self) -> set[int]:
        wanted = {STDIN: self.stdin, STDOUT: self.stdout, STDERR: self.stderr and not self.terminal}
        wanted |= {ERROR: True, RESIZE: self.terminal}
        return {channel for channel, asked in wanted.items() if asked}


async def run_in(
    container: int,
    beside: Program,
    asked: Asked,
    headers: dict[str, str],
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    remote: Remote
    if headers.get("upgrade", "").lower().startswith("spdy"):
        session = await spdy.accept(headers, *connection)
        await session.opened(asked.channels())
        remote = session
    else:
        remote = await websocket.accept(headers, *connection)
    program = Program(asked.command, beside.env, beside.cwd)
    code = await _Conversation(remote, asked).run(container, program)
    await remote.send(ERROR, json.dumps(_outcome(code)).encode())
    await remote.finish()


class _Conversation:
    """Our ends of the program's pipes, or of its terminal."""

    def __init__(self, remote: Remote, asked: Asked) -> None:
        self._remote = remote
        self._asked = asked
        self._input = -1
        self._outputs: dict[int, int] = {}  # descriptors by channel
        self._theirs: list[int] = []

    async def run(self, container: int, program: Program) -> int:
        """How it ended, once its output has been passed on."""
        streams = self._terminal() if self._asked.terminal else self._pipes()
        try:
            pid = spawning.join(container, program, streams)
        finally:
            for descriptor in set(self._theirs):
                os.close(descriptor)
        pumps = [asyncio.create_task(self._pump(*each)) for each in self._outputs.items()]
        listening = asyncio.create_task(self._listen(pid))
        try:
            code = await spawning.ended(pid)
            listening.cancel()
            if pumps:
                await asyncio.wait(pumps, timeout=_DRAIN)
            return code
        finally:
            listening.cancel()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(listening, *pumps, return_exceptions=True)
            for descriptor in {*self._outputs.values(), self._input} - {-1}:
                os.close(descriptor)

    def _pipes(self) -> Streams:
        nothing = os.open(os.devnull, os.O_RDWR)
        ends = {STDIN: nothing, STDOUT: nothing, STDERR: nothing}
        if self._asked.stdin:
            ends[STDIN], self._input = os.pipe()
        for channel, wanted in ((STDOUT, self._asked.stdout), (STDERR, self._asked.stderr)):
            if wanted:
                self._outputs[channel], ends[channel] = os.pipe()
        self._theirs = [nothing, *ends.values()]
        return Streams(ends[STDIN], ends[STDOUT], ends[STDERR])

    def _terminal(self) -> Streams:
        ours, theirs = os.openpty()
        self._theirs = [theirs]
        self._outputs[STDOUT] = ours
        self._input = ours
        return Streams(theirs, theirs, theirs, terminal=True)

    async def _pump(self, channel: int, descriptor: int) -> None:
        while text := await read(descriptor, _CHUNK):
            await self._remote.send(channel, text)

    async def _listen(self, pid: int) -> None:
        try:
            while (piece := await self._remote.receive()) is not None:
                self._take(*piece)
        except (OSError, asyncio.IncompleteReadError) as gone:
            print(f"exec: the caller has gone: {gone!r}", flush=True)
        os.kill(pid, signal.SIGKILL)

    def _take(self, channel: int, data: bytes) -> None:
        if channel == STDIN and self._input >= 0:
            if data:
                _write(self._input, data)
            elif not self._asked.terminal:
                os.close(self._input)
                self._input = -1
        elif channel == RESIZE and data and self._asked.terminal:
            size = json.loads(data)
            shape = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            fcntl.ioctl(self._input, termios.TIOCSWINSZ, shape)


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:
        return  # it does not read any more


def _outcome(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
