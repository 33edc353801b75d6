"""What the person at the terminal sees: members' lines with their rank, and our own lines.

A member's lines carry the rank it has now, or its name while it has none. The same traceback from
several members is shown once. Files are kept as well when an output folder was asked for: one for
each member, or as the job's dialect has them. Own lines go to stderr, so that stdout holds
the script's output alone; with a log level they look like those of Python's logging. Nothing here
waits for a terminal or a disk: what they do not take is dropped and counted.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path

from midflight import terminal
from midflight.printable import in_one_line
from midflight.protocol.job import JobSpec
from midflight.sink import Files

MOST_OUTPUT = 1 << 30  # bytes of one file; then a new one is begun, and one older is kept
_LEVELS = ("debug", "info", "warning", "error")
_LEAST = {"TRACE": "debug", "FATAL": "error"}  # what logging has no name for


class Printer:
    def __init__(self, spec: JobSpec, *, verbose: bool) -> None:
        self._timestamps = spec.timestamps
        self._folder = Path(spec.output_dir) if spec.output_dir else None
        self._verbose = verbose
        self._dialect = spec.dialect
        self._width = len(str(max(spec.np - 1, 0)))  # of a rank in the name of a file
        self._files = Files(terminal.report_unwritten(spec.output_dir), MOST_OUTPUT)
        self._tracebacks: set[str] = set()
        self._ranks: dict[str, int] = {}  # the last that each member had
        self._ended: set[str] = set()

    def output(
        self, member: str, rank: int | None, stream: str, lines: Sequence[str], at: float
    ) -> None:
        if rank is not None:
            self._ranks[member] = rank
        known = rank is not None or self._dialect.by_rank
        label = str(self._last_rank(member)) if known else member
        stamp = (
            time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at)) if self._timestamps else ""
        )
        show = terminal.err if stream == "stderr" else terminal.out
        prefix = stamp + self._dialect.prefix.format(label=label, stream=stream)
        show([prefix + line for line in lines])
        if self._folder is not None:
            self._files.put(self._folder / self._place(member) / stream, lines)

    def ended(self, member: str, rank: int | None, code: int) -> None:
        """A process has ended."""
        if rank is not None:
            self._ranks[member] = rank
        if self._dialect.ended_badly and code != 0 and member not in self._ended:
            self._ended.add(member)  # an agent may say it again
            status = code if code > 0 else 128 - code
            rank = self._last_rank(member)
            terminal.out([self._dialect.ended_badly.format(rank=rank, status=status)])

    def _place(self, member: str) -> str:
        rank = self._last_rank(member)
        return self._dialect.output_folder.format(member=member, rank=rank, width=self._width)

    def _last_rank(self, member: str) -> int:
        """Before it had one: its number among all that were started."""
        number = member.lstrip("m")
        return self._ranks.get(member, int(number) if number.isdecimal() else 0)

    def traceback(self, member: str, rank: int | None, error: str) -> None:
        """A script's traceback, in full the first time and as a reference afterwards."""
        text = re.sub(r"0x[0-9a-f]+", "0x…", error)
        known = text in self._tracebacks
        self._tracebacks.add(text)
        lines = error.rstrip().splitlines()
        if known and lines:
            lines = [f"the same error as above: {lines[-1]}"]
        self.output(member, rank, "stderr", lines, time.time())

    def say(self, line: str, level: str = "info") -> None:
        if self._dialect.log_level:
            self._log(line, level)
            return
        if level == "debug" and not self._verbose:
            return
        mark = "" if level in ("info", "debug") else f"{level}: "
        terminal.say(f"{mark}{line}")

    def _log(self, line: str, level: str) -> None:
        least = _LEAST.get(self._dialect.log_level, self._dialect.log_level.lower())
        if _LEVELS.index(level) >= _LEVELS.index(least):
            terminal.err([f"{level.upper()}:root:{in_one_line(line)}"])

    def close(self) -> None:
        """Give the last lines a short while to be written."""
        self._files.close()
        terminal.drain()
