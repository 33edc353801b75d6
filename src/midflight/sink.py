"""A sink takes lines for one place and writes them in a thread of its own.

`put` never blocks: a pipe that nobody reads, or a disk that hangs, must not stop the process that
has something to say. The queue is bounded. When it is full, the oldest lines are dropped, and their
number is reported once the place takes lines again. At the end `drain` waits as long as lines get
through; a thread that is stuck then is left behind.
"""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

REPORT_SECONDS = 5.0  # between two reports of dropped lines
MOST_OPEN = 256  # files
FILE_PATIENCE = 10.0  # seconds; a healthy disk that is busy with other writes may pause for some

T = TypeVar("T")
Report = Callable[[int, str], None]  # how many lines were dropped, and the error; "": too slow


@dataclass(frozen=True)
class Bounds:
    lines: int
    size: int  # bytes
    piece: int = 4096  # bytes written at a time; a pipe takes that many as a whole


@dataclass(frozen=True)
class _Batch(Generic[T]):
    target: T
    data: bytes
    lines: int


class Sink(Generic[T]):
    def __init__(
        self, name: str, write: Callable[[T, bytes], None], report: Report, bounds: Bounds
    ) -> None:
        """`write` may block and may raise OSError; `report` must do neither."""
        self._name = name
        self._write = write
        self._report = report
        self._bounds = bounds
        self._queue: deque[_Batch[T]] = deque()
        self._urgent: deque[_Batch[T]] = deque(maxlen=100)
        self._lines = 0  # in the queue
        self._size = 0  # the same, in bytes
        self._in_hand: int | None = None  # lines that are being written; None: nothing is
        self._progress = 0  # grows with every piece that gets through
        self._stuck_at = -1  # the progress at which `drain` gave up
        self._dropped = 0  # lines, not reported yet
        self._error = ""
        self._report_at = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, target: T, data: bytes, lines: int, *, urgent: bool = False) -> None:
        """Queue whole lines; urgent ones are written before all others, and not counted."""
        with self._changed:
            if urgent:
                self._urgent.append(_Batch(target, data, 0))
            else:
                self._queue.append(_Batch(target, data, lines))
                self._count(self._queue[-1], 1)
            while len(self._queue) > 1 and self._is_full():
                self._dropped += self._pop().lines
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, patience: float) -> bool:
        """Wait until all is written, or until nothing has got through for `patience` seconds."""
        with self._changed:
            while self._is_busy() and self._stuck_at != self._progress:
                self._await_progress(patience)
            complete = not self._is_busy()
            self._dropped += self._lines + (self._in_hand or 0)
            self._in_hand = None
            self._urgent.clear()
            while self._queue:
                self._pop()
        self._report_dropped()
        return complete

    def _is_busy(self) -> bool:
        return bool(self._urgent or self._queue) or self._in_hand is not None

    def _await_progress(self, patience: float) -> None:
        before = self._progress
        if not self._changed.wait_for(lambda: self._progress != before, patience):
            self._stuck_at = before

    def _is_full(self) -> bool:
        return self._lines > self._bounds.lines or self._size > self._bounds.size

    def _count(self, batch: _Batch[T], sign: int) -> None:
        self._lines += sign * batch.lines
        self._size += sign * len(batch.data)

    def _pop(self) -> _Batch[T]:
        batch = self._queue.popleft()
        self._count(batch, -1)
        return batch

    # --- the thread -------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                self._report_dropped()
            else:
                self._write_out(batch)

    def _next(self) -> _Batch[T] | None:
        """What to write next; None if dropped lines are to be reported before it."""
        with self._changed:
            while True:
                due = self._report_at - time.monotonic()
                if self._dropped and due <= 0:
                    return None
                if self._urgent or self._queue:
                    batch = self._urgent.popleft() if self._urgent else self._pop()
                    self._in_hand = batch.lines
                    return batch
                self._changed.wait(due if self._dropped else None)

    def _report_dropped(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, 0
            error, self._error = self._error, ""
            self._report_at = time.monotonic() + REPORT_SECONDS
        if dropped:
            self._report(dropped, error)

    def _write_out(self, batch: _Batch[T]) -> None:
        left = batch.lines
        error = ""
        try:
            for piece in _pieces(batch.data, self._bounds.piece):
                self._write(batch.target, piece)
                left -= min(left, piece.count(b"\n"))
                self._passed(left)
        except OSError as failure:
            error = failure.strerror or str(failure)
        with self._changed:
            if error:
                self._dropped += left
                self._error = error
        self._passed(None)

    def _passed(self, left: int | None) -> None:
        with self._changed:
            self._in_hand = left
            self._progress += 1
            self._changed.notify_all()


class Files:
    """Appends lines to files, which may be on a disk that hangs.

    With a `limit` (bytes), a file that has grown so large becomes FILE.1, in place of an older one.
    """

    def __init__(self, report: Report, limit: int | None = None, mode: int = 0o666) -> None:
        """`mode`: of the files that are made, less the umask."""
        bounds = Bounds(lines=1_000_000, size=256 << 20, piece=1 << 16)
        self._sink: Sink[Path] = Sink("midflight-files", self._append, report, bounds)
        self._limit = limit
        self._mode = mode
        self._open: dict[Path, int] = {}

    def put(self, path: Path, lines: Sequence[str]) -> None:
        self._sink.put(path, as_bytes(lines), len(lines))

    def close(self) -> None:
        if self._sink.drain(FILE_PATIENCE):
            for descriptor in self._open.values():
                os.close(descriptor)
            self._open = {}

    def _append(self, path: Path, data: bytes) -> None:
        if path not in self._open:
            self._close_first()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
        write_all(self._open[path], data)
        if self._limit is not None and os.fstat(self._open[path]).st_size >= self._limit:
            os.close(self._open.pop(path))
            path.replace(older(path))

    def _close_first(self) -> None:
        """A job may have had more members than a process may have descriptors."""
        if len(self._open) >= MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))


def older(path: Path) -> Path:
    """Where a file is kept that has reached its limit."""
    return path.with_name(f"{path.name}.1")


def as_bytes(lines: Sequence[str], encoding: str = "utf-8") -> bytes:
    return "".join(line + "\n" for line in lines).encode(encoding, "backslashreplace")


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process that has the same file made it non-blocking
            writable = select.poll()  # select() fails from descriptor 1,024 on
            writable.register(descriptor, select.POLLOUT)
            writable.poll()


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Whole lines where they fit, so that nobody else's are written into the middle of one."""
    begin = 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + size) + 1 or begin + size
        yield data[begin:end]
        begin = end
