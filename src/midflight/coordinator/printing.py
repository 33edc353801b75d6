"""What the person at the terminal sees: members' lines with their rank, and our own lines.

A member's lines carry the rank it has now, or its name while it has none. The same traceback from
several members is shown once. A file per member is kept as well when an output folder was asked
for. Own lines go to stderr, so that stdout holds the script's output alone.
"""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


class Printer:
    def __init__(self, *, timestamps: bool, output_dir: str | None, verbose: bool) -> None:
        self._timestamps = timestamps
        self._folder = Path(output_dir) if output_dir else None
        self._verbose = verbose
        self._files: dict[tuple[str, str], TextIO] = {}
        self._tracebacks: set[str] = set()

    def output(
        self, member: str, rank: int | None, stream: str, lines: Sequence[str], at: float
    ) -> None:
        label = member if rank is None else str(rank)
        stamp = (
            time.strftime("%a %b %e %H:%M:%S %Y", time.localtime(at)) if self._timestamps else ""
        )
        target = sys.stderr if stream == "stderr" else sys.stdout
        _write(target, [f"{stamp}[{label}]<{stream}>:{line}" for line in lines])
        if self._folder is not None:
            self._keep(member, stream, lines)

    def _keep(self, member: str, stream: str, lines: Sequence[str]) -> None:
        key = (member, stream)
        if key not in self._files:
            assert self._folder is not None
            place = self._folder / member
            place.mkdir(parents=True, exist_ok=True)
            self._files[key] = (place / stream).open("a", encoding="utf-8")
        _write(self._files[key], lines)

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
        if level == "debug" and not self._verbose:
            return
        mark = "" if level in ("info", "debug") else f"{level}: "
        _write(sys.stderr, [f"midflight: {mark}{line}"])

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _write(target: TextIO, lines: Sequence[str]) -> None:
    """A reader that went away (a closed pipe) or a full disk must not stop the training."""
    try:
        target.write("".join(line + "\n" for line in lines))
        target.flush()
    except (OSError, ValueError):
        return
