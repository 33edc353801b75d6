"""Where a worker's stdout and stderr go: the terminal by default, or files, or both.

The layout of the files is torchrun's: LOG_DIR/RUN_RANDOM/attempt_N/LOCAL_RANK/ with stdout.log,
stderr.log and error.json. A worker has the terminal itself unless its lines have to be read on the
way; with --tee each line shown carries `[role0]:`. A membership change starts the same attempt
anew, and its files are continued. Lines that pass through here wait neither for the terminal nor
for the disk.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from string import Template

from midflight import terminal
from midflight.agent.output import MemberOutput
from midflight.errors import UsageError
from midflight.protocol.messages import Output, StartMember
from midflight.sink import Files

PREFIX_TEMPLATE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
_ONE = re.compile(r"[0123]")
_SOME = re.compile(r"\d+:[0123](,\d+:[0123])*")


class Std(IntFlag):
    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


Streams = Std | dict[int, Std]  # the same for all, or by local rank


@dataclass(frozen=True)
class LogOptions:
    folder: str | None = None  # None: a temporary one
    redirects: Streams = Std.NONE
    tee: Streams = Std.NONE
    shown: frozenset[int] | None = None  # the local ranks that show on the terminal; None: all


def parse_streams(flag: str, text: str) -> Streams:
    if _ONE.fullmatch(text):
        return Std(int(text))
    if _SOME.fullmatch(text):
        pairs = (part.split(":") for part in text.split(","))
        return {int(rank): Std(int(std)) for rank, std in pairs}
    raise UsageError(f"{flag} wants 0, 1, 2 or 3, or RANK:STREAMS as in 0:3,1:2, got {text!r}")


def _of(streams: Streams, local_rank: int) -> Std:
    return streams.get(local_rank, Std.NONE) if isinstance(streams, dict) else streams


class Logs:
    """The log folder of this node, and the outlets of its workers."""

    def __init__(self, options: LogOptions, run: str, role: str, environ: Mapping[str, str]):
        self._options = options
        self._role = role
        self._template = environ.get(PREFIX_TEMPLATE)
        self._made = options.folder is None  # ours to remove
        try:
            if options.folder is None:
                self._base = Path(tempfile.mkdtemp(prefix="torchelastic_"))
            else:
                self._base = Path(options.folder)
                self._base.mkdir(parents=True, exist_ok=True)
            prefix = re.sub(r"[^\w.-]", "_", run)[:80]
            self._folder = Path(tempfile.mkdtemp(prefix=f"{prefix}_", dir=self._base))
        except OSError as error:
            raise UsageError(f"--log-dir: {error}") from None
        self._files = Files(terminal.report_unwritten(self._folder))

    def error_file(self, order: StartMember) -> Path:
        return self._place(order) / "error.json"

    def open(self, order: StartMember) -> "WorkerStreams":
        place = self._place(order)
        place.mkdir(parents=True, exist_ok=True)
        self.error_file(order).unlink(missing_ok=True)
        return WorkerStreams(order, place, self._options, self._prefix(order), self._files)

    def clear_up(self) -> None:
        """Leave nothing of a temporary folder in which no error was written down."""
        self._files.close()
        if self._made and not any(self._base.rglob("error.json")):
            shutil.rmtree(self._base, ignore_errors=True)

    def _place(self, order: StartMember) -> Path:
        attempt = order.environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        return self._folder / f"attempt_{int(attempt)}" / str(order.slot)

    def _prefix(self, order: StartMember) -> str:
        if self._template is None:
            return f"[{self._role}{order.slot}]:"
        return Template(self._template).safe_substitute(
            role_name=self._role, rank=order.environment.get("RANK", ""), local_rank=order.slot
        )


class WorkerStreams:
    """The outlet of one worker; see `agent.outlet.Outlet`."""

    def __init__(
        self, order: StartMember, place: Path, options: LogOptions, prefix: str, files: Files
    ) -> None:
        self._order = order
        self._prefix = prefix
        self._files = files
        self._paths: dict[str, Path] = {}  # of the streams that are shown and kept
        self._ends: list[int] = []  # the worker's
        self._reads: list[int] = []  # ours; -1: nothing passes through here
        self._output: MemberOutput | None = None
        self._done = asyncio.Event()
        tee = _of(options.tee, order.slot)
        filed = _of(options.redirects, order.slot) | tee
        shown = options.shown is None or order.slot in options.shown
        try:
            for std, name in ((Std.OUT, "stdout"), (Std.ERR, "stderr")):
                path = place / f"{name}.log"
                if std & tee and shown:
                    self._pipe_into(name, path)
                elif std & filed:
                    self._add(_append(path))
                elif shown:
                    self._add(os.dup(int(std)))  # 1 and 2 are the descriptors' numbers, too
                else:
                    self._add(os.open(os.devnull, os.O_WRONLY))
        except OSError:
            self.not_started()
            raise

    def _pipe_into(self, name: str, path: Path) -> None:
        os.close(_append(path))  # or say now that it cannot be written
        self._paths[name] = path
        read, write = os.pipe()
        self._add(write, read)

    def _add(self, end: int, read: int = -1) -> None:
        self._ends.append(end)
        self._reads.append(read)

    @property
    def stdout(self) -> int:
        return self._ends[0]

    @property
    def stderr(self) -> int:
        return self._ends[1]

    @property
    def tail(self) -> str:
        return self._output.tail if self._output is not None else ""

    @property
    def closed(self) -> asyncio.Event:
        return self._output.closed if self._output is not None else self._done

    def started(self) -> None:
        self._close_ends()
        if any(read >= 0 for read in self._reads):
            out, err = (read if read >= 0 else _ended() for read in self._reads)
            self._output = MemberOutput(self._order.member, out, err, self._show)

    def not_started(self) -> None:
        self._close_ends()
        for read in self._reads:
            if read >= 0:
                os.close(read)

    def member_died(self) -> None:
        if self._output is None:
            self._done.set()
        else:
            self._output.member_died()

    def _show(self, output: Output) -> None:
        if (path := self._paths.get(output.stream)) is not None:
            self._files.put(path, output.lines)
        show = terminal.out if output.stream == "stdout" else terminal.err
        show([f"{self._prefix}{line}" for line in output.lines])

    def _close_ends(self) -> None:
        for end in self._ends:
            os.close(end)
        self._ends = []


def _append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _ended() -> int:
    """The reading end of a pipe into which nobody writes."""
    read, write = os.pipe()
    os.close(write)
    return read
