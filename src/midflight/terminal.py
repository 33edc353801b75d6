"""This process's stdout and stderr, written to without ever waiting for their reader.

A program that trains, or that looks after one that does, prints through here: a pager, Ctrl-S or a
frozen ssh connection must not stop it. Lines that the reader does not take are dropped and counted.
If both streams lead to the same place, their lines stay in order. What is queued when the process
ends gets a short while to be read.

Text that others chose (names, reasons, logs) must not command the terminal: it is written in the
form that `printable` gives it.
"""

import atexit
import codecs
import contextlib
import errno
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from midflight.printable import printable
from midflight.sink import Bounds, Report, Sink, as_bytes, write_all

PATIENCE = 2.0  # seconds without a line getting through, at the end
_BOUNDS = Bounds(lines=100_000, size=16 << 20)
_GONE = (errno.EPIPE, errno.EIO)  # the reader has closed its end, or hung up

CLEAR = "\x1b[H\x1b[2J"  # the screen, for what is shown again and again
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_COLOURED = re.compile(r"\x1b\[3[0-7]m[\w,-]+\x1b\[0m")
_BEGUN = re.compile(r"\x1b(\[[0-9;]{0,20})?\Z")  # of a sequence that may go on in the next piece

_sinks: dict[tuple[int, int], Sink[int]] = {}  # by the file that a stream leads to
_one_at_a_time = threading.Lock()


def out(lines: Sequence[str]) -> None:
    _show(sys.stdout, lines)


def err(lines: Sequence[str]) -> None:
    _show(sys.stderr, lines)


def say(line: str) -> None:
    """A line of our own; what follows an end of line in it does not look like another one."""
    first, *others = printable(line).split("\n")
    err([f"midflight: {first}", *(f"  {other}" for other in others)])


def coloured(word: str, colour: int) -> str:
    """One word, in a colour of ANSI."""
    return f"\x1b[{colour}m{word}\x1b[0m"


class Escaped:
    """A stream of text on which nothing but `CLEAR` and coloured words commands the terminal.

    Where there is no colour, `has_colour` says so, and one that comes all the same is not ours.
    """

    def __init__(self, stream: TextIO, has_colour: Callable[[], bool] = lambda: False) -> None:
        self._stream = stream
        self._has_colour = has_colour

    def write(self, text: str) -> int:
        if text == CLEAR:
            return self._stream.write(text)
        passing = _COLOURED if "\x1b" in text and self._has_colour() else None
        return self._stream.write(_escape(text, passing))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class LogFilter:
    """A log on its way to a terminal: colours pass, all other sequences are written out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def pass_on(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield self._shown(self._decoder.decode(piece), last=False)
        yield self._shown(self._decoder.decode(b"", final=True), last=True)

    def _shown(self, text: str, last: bool) -> bytes:
        text = self._rest + text
        begun = None if last else _BEGUN.search(text)
        self._rest = text[begun.start() :] if begun else ""
        text = text[: begun.start()] if begun else text
        return _escape(text, _COLOUR).encode()


def _escape(text: str, passing: re.Pattern[str] | None) -> str:
    """`printable`, but for what matches."""
    if passing is None:
        return printable(text)
    kept = [*passing.findall(text), ""]
    parts = zip(passing.split(text), kept, strict=True)
    return "".join(printable(part) + match for part, match in parts)


def drain() -> None:
    """Wait for the readers, as long as they read."""
    last = _sink_of(sys.stderr)  # the others may have something to report there
    for sink in sorted(_sinks.values(), key=lambda sink: sink is last):
        sink.drain(PATIENCE)


def lost(count: int, what: str, why: str) -> str:
    """How dropped lines are reported."""
    lines = "1 line was" if count == 1 else f"{count:,} lines were"
    return f"midflight: {lines} not {what}: {why}"


def report_unwritten(folder: object) -> Report:
    """For files in that folder: says on stderr which lines they lack."""

    def report(count: int, error: str) -> None:
        why = error or "the disk did not take them in time"
        err([lost(count, f"written to {folder}", why)])

    return report


class ErrorStream:
    """stderr for whoever wants a file to write lines to, such as a logging handler."""

    def write(self, text: str) -> None:
        err(printable(text.removesuffix("\n")).split("\n"))

    def flush(self) -> None:
        """Nothing is held back."""


def _show(stream: TextIO | None, lines: Sequence[str], *, urgent: bool = False) -> None:
    sink = _sink_of(stream)
    if sink is not None:
        assert stream is not None
        sink.put(stream.fileno(), as_bytes(lines, stream.encoding), len(lines), urgent=urgent)
    elif stream is not None:  # it is in memory
        with contextlib.suppress(OSError, ValueError):
            stream.write("".join(line + "\n" for line in lines))


def _sink_of(stream: TextIO | None) -> Sink[int] | None:
    """None if the stream was closed before this process began, or has no descriptor."""
    if stream is None:
        return None
    try:
        place = os.fstat(stream.fileno())
    except (io.UnsupportedOperation, OSError, ValueError):
        return None
    key = place.st_dev, place.st_ino
    with _one_at_a_time:
        if not _sinks:
            atexit.register(drain)
        return _sinks.setdefault(key, Sink("midflight-terminal", _write, _report, _BOUNDS))


def _report(count: int, error: str) -> None:
    line = lost(count, "shown", error or "the terminal did not read them")
    _show(sys.stderr, [line], urgent=True)


def _write(descriptor: int, data: bytes) -> None:
    try:
        write_all(descriptor, data)
    except OSError as error:
        if error.errno not in _GONE:
            raise
