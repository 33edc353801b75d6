"""The training process's side: write a line per completed step, and wait at the gate.

The gate serves the steady case, in which the systems take turns: a process sleeps when it has done
as many steps as its run folder allows. All members of a world stop at the same step, so nobody
waits for another in a collective meanwhile. The clock never runs across a gate.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

FOLDER = "BENCH_FOLDER"
PARENT = "BENCH_PARENT"
LIMIT_FILE = "limit"  # absent: nobody waits


@dataclass
class Recorder:
    folder: Path
    who: int
    parent: int  # the benchmark's process; when it is gone nobody would end us

    def __post_init__(self) -> None:
        path = self.folder / f"{os.getpid()}.steps"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._gate = self.folder / LIMIT_FILE
        self._limit = self._read_limit()

    @classmethod
    def from_env(cls, who: int | None = None) -> "Recorder":
        folder, parent = Path(os.environ[FOLDER]), int(os.environ[PARENT])
        return cls(folder, os.getpid() if who is None else who, parent)

    def done(self, step: int, size: int) -> None:
        """The step was completed just now; returns when the next one may begin."""
        line = {"who": self.who, "pid": os.getpid(), "t": time.monotonic()}
        line |= {"step": step, "size": size}
        os.write(self._file, (json.dumps(line) + "\n").encode())
        self._leave_if_orphaned()
        while step >= self._limit:
            time.sleep(0.02)
            self._limit = self._read_limit()
            self._leave_if_orphaned()

    def _read_limit(self) -> float:
        return int(self._gate.read_text()) if self._gate.exists() else float("inf")

    def _leave_if_orphaned(self) -> None:
        try:
            os.kill(self.parent, 0)
        except ProcessLookupError:
            os._exit(1)
