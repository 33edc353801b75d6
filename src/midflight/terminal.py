"""This process's stdout and stderr, written to without ever waiting for their reader.

A program that trains, or that looks after one that does, prints through here: a pager, Ctrl-S or a
frozen ssh connection must not stop it. Lines that the reader does not take are dropped and counted.
If both streams lead to the same place, their lines stay in order. What is queued when the process
ends gets a short while to be read.
"""

import atexit
import contextlib
import errno
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

from midflight.sink import Bounds, Report, Sink, as_bytes, write_all

PATIENCE = 2.0  # seconds without a line getting through, at the end
_BOUNDS = Bounds(lines=100_000, size=16 << 20)
_GONE = (errno.EPIPE, errno.EIO)  # the reader has closed its end, or hung up

_sinks: dict[tuple[int, int], Sink[int]] = {}  # by the file that a stream leads to
_one_at_a_time = threading.Lock()


def out(lines: Sequence[str]) -> None:
    _show(sys.stdout, lines)


def err(lines: Sequence[str]) -> None:
    _show(sys.stderr, lines)


def say(line: str) -> None:
    """A line of our own."""
    err([f"midflight: {line}"])


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
        err(text.splitlines())

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
