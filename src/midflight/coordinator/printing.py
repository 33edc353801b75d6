"""What the person at the terminal sees: members' lines with their rank, and our own lines.

A member's lines carry the rank it has now, or its name while it has none. The same traceback from
several members is shown once. Files are kept as well when an output folder was asked for: one for
each member, or, in Horovod's voice, one for each rank. Own lines go to stderr, so that stdout holds
the script's output alone; with a log level they look like those of Python's logging. Nothing here
waits for a terminal or a disk: what they do not take is dropped and counted.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from midflight import terminal
from midflight.protocol.job import JobSpec
from midflight.sink import Files

HOROVOD = "horovod"
_LEVELS = ("debug", "info", "warning", "error")
_LEAST = {"TRACE": "debug", "FATAL": "error"}  # what logging has no name for


@dataclass(frozen=True)
class Manner:
    """Whose habits the output follows."""

    voice: str = ""  # "": our own
    log_level: str = ""  # "": own lines look like ours
    width: int = 1  # of the rank in the name of a file

    @classmethod
    def of(cls, spec: JobSpec) -> "Manner":
        return cls(spec.voice, spec.log_level, len(str(max(spec.np - 1, 0))))


class Printer:
    def __init__(
        self,
        *,
        timestamps: bool,
        output_dir: str | None,
        verbose: bool,
        manner: Manner | None = None,
    ) -> None:
        self._timestamps = timestamps
        self._folder = Path(output_dir) if output_dir else None
        self._verbose = verbose
        self._manner = manner or Manner()
        self._files = Files(terminal.report_unwritten(output_dir))
        self._tracebacks: set[str] = set()
        self._ranks: dict[str, int] = {}  # the last that each member had
        self._ended: set[str] = set()

    def output(
        self, member: str, rank: int | None, stream: str, lines: Sequence[str], at: float
    ) -> None:
        if rank is not None:
            self._ranks[member] = rank
        label = member if rank is None else str(rank)
        stamp = (
            time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at)) if self._timestamps else ""
        )
        show = terminal.err if stream == "stderr" else terminal.out
        show([f"{stamp}[{label}]<{stream}>:{line}" for line in lines])
        if self._folder is not None:
            self._files.put(self._folder / self._place(member) / stream, lines)

    def ended(self, member: str, rank: int | None, code: int) -> None:
        """A process has ended. Horovod tells of those that ended badly."""
        if rank is not None:
            self._ranks[member] = rank
        if self._manner.voice == HOROVOD and code != 0 and member not in self._ended:
            self._ended.add(member)  # an agent may say it again
            status = code if code > 0 else 128 - code
            line = f"Process {self._last_rank(member)} exit with status code {status}."
            terminal.out([line])

    def _place(self, member: str) -> str:
        if self._manner.voice != HOROVOD:
            return member
        return f"rank.{self._last_rank(member):0{self._manner.width}d}"

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
        if self._manner.log_level:
            self._log(line, level)
            return
        if level == "debug" and not self._verbose:
            return
        mark = "" if level in ("info", "debug") else f"{level}: "
        terminal.say(f"{mark}{line}")

    def _log(self, line: str, level: str) -> None:
        least = _LEAST.get(self._manner.log_level, self._manner.log_level.lower())
        if _LEVELS.index(level) >= _LEVELS.index(least):
            terminal.err([f"{level.upper()}:root:{line}"])

    def close(self) -> None:
        """Give the last lines a short while to be written."""
        self._files.close()
        terminal.drain()
