"""What members print: bytes from two pipes in, batches of whole lines out.

`LineSplitter` decides where a line ends and is pure. `MemberOutput` reads both pipes of a member
while it runs, gathers lines for a few milliseconds, keeps the end of stderr for the report of its
death, and never makes anybody wait: after the death it takes what is there at once, and goes on
for a short while with what a grandchild may still hold open.
"""

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable

from midflight.protocol.messages import Output

LONGEST_LINE = 64 << 10
TAIL_LINES = 60
TAIL_CHARACTERS = 32 << 10
_BATCH_SECONDS = 0.02
_BATCH_CHARACTERS = 256 << 10  # well below a frame, however it is escaped
_READ = 64 << 10
_DRAIN_READS = 4  # at a death: more than a pipe holds
_AFTERWARDS = 0.3
_LINE_END = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Bytes to lines. LF, CRLF and a lone CR end a line; a lone CR ends no empty one."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = b""
        self._after_cr: str | None = None  # the line a `\r` at the end of the data has ended

    def feed(self, data: bytes) -> list[str]:
        lines: list[str] = []
        if self._after_cr is not None and data:
            if data.startswith(b"\n"):  # the two halves of one line end
                data = data[1:]
                if not self._after_cr:
                    lines.append("")
            self._after_cr = None
        text = self._rest + data
        start = 0
        for match in _LINE_END.finditer(text, len(self._rest)):
            line = text[start : match.start()]
            start = match.end()
            if match.group() == b"\r":
                if start == len(text):
                    self._after_cr = "line" if line else ""
                if not line:
                    continue
            lines += self._pieces(line)
        self._rest = text[start:]
        if len(self._rest) > self._longest:
            *whole, self._rest = self._cut(self._rest)
            lines += map(_decode, whole)
        return lines

    def flush(self) -> list[str]:
        """The last line, which nothing ended."""
        rest, self._rest = self._rest, b""
        return self._pieces(rest) if rest else []

    def _pieces(self, line: bytes) -> list[str]:
        return [_decode(piece) for piece in self._cut(line)]

    def _cut(self, line: bytes) -> list[bytes]:
        pieces = []
        while len(line) > self._longest:
            end = self._longest
            while end > self._longest - 4 and line[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
            pieces.append(line[:end])
            line = line[end:]
        return [*pieces, line]


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace")


class _Stream:
    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.open = True
        self.splitter = LineSplitter()
        self.batch: list[str] = []
        self.size = 0  # characters in the batch
        self.since = 0.0


class MemberOutput:
    """Reads the pipes of one member until both are closed. Owns the two descriptors."""

    def __init__(self, member: str, stdout: int, stderr: int, put: Callable[[Output], None]):
        self._member = member
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._timer: asyncio.TimerHandle | None = None
        self._streams = (_Stream("stdout", stdout), _Stream("stderr", stderr))
        self.closed = asyncio.Event()
        for stream in self._streams:
            os.set_blocking(stream.fd, False)
            self._loop.add_reader(stream.fd, self._read, stream)

    @property
    def tail(self) -> str:
        return "\n".join(self._tail)[-TAIL_CHARACTERS:]

    def member_died(self) -> None:
        """Take what is there at once, and stop reading a little later at the latest."""
        for stream in self._streams:
            for _ in range(_DRAIN_READS):
                if not stream.open or not self._read(stream):
                    break
            self._add(stream, stream.splitter.flush())
            self._send(stream)
        if not self.closed.is_set():
            self._loop.call_later(_AFTERWARDS, self.close)

    def close(self) -> None:
        for stream in self._streams:
            if stream.open:
                self._close(stream)

    def _read(self, stream: _Stream) -> bool:
        """Whether there may be more to read right away."""
        try:
            data = os.read(stream.fd, _READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return False
        self._add(stream, stream.splitter.feed(data))
        return True

    def _close(self, stream: _Stream) -> None:
        stream.open = False
        self._loop.remove_reader(stream.fd)
        os.close(stream.fd)
        self._add(stream, stream.splitter.flush())
        self._send(stream)
        if not any(stream.open for stream in self._streams):
            self.closed.set()

    def _add(self, stream: _Stream, lines: list[str]) -> None:
        for line in lines:
            if not stream.batch:
                stream.since = time.time()
            stream.batch.append(line)
            stream.size += len(line) + 1
            if stream.size >= _BATCH_CHARACTERS:
                self._send(stream)
        if stream.name == "stderr":
            self._tail.extend(lines)
        if stream.batch and self._timer is None:
            self._timer = self._loop.call_later(_BATCH_SECONDS, self._send_all)

    def _send_all(self) -> None:
        self._timer = None
        for stream in self._streams:
            self._send(stream)

    def _send(self, stream: _Stream) -> None:
        if stream.batch:
            self._put(Output(self._member, stream.name, tuple(stream.batch), stream.since))
            stream.batch, stream.size = [], 0
