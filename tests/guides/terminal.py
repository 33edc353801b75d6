"""A person at a terminal: types lines into a shell, reads what comes back.

Each terminal has a home of its own, so a server of its own; leaving it deletes the jobs, ends the
server and sees to it that no process of either is left.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

PATIENCE = 90.0  # seconds; generous, for a loaded machine


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._home = tempfile.TemporaryDirectory(prefix="mf-")
        self.home = Path(self._home.name)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")},
            "MIDFLIGHT_HOME": str(self.home),
            "MIDFLIGHT_LOG_FORMAT": "text",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self) -> Self:
        return self

    def types(self, line: str, *, code: int | None = 0, within: float = PATIENCE) -> Said:
        """Run one line as a shell would; its exit code must be `code`, unless that is None."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
        said = Said(done.returncode, done.stdout, done.stderr)
        assert code is None or said.code == code, f"$ {line}\n{said}\n{self._server_log()}"
        return said

    def until(self, line: str, wanted: Callable[[str], object], within: float = PATIENCE) -> str:
        """Type the line again and again, as a person does who waits; the output that pleased."""
        deadline = time.monotonic() + within
        said = Said(0, "", "")
        while time.monotonic() < deadline:
            said = self.types(line, code=None)
            if wanted(said.out):
                return said.out
            time.sleep(0.1)
        raise AssertionError(f"$ {line}\nnever said what was wanted; last:\n{said}\n{self._tell()}")

    def processes(self) -> dict[int, str]:
        """Everything that carries this home in its environment."""
        mark = f"MIDFLIGHT_HOME={self.home}".encode()
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal() or int(folder.name) == os.getpid():
                continue
            words = _read(folder / "cmdline").replace(b"\0", b" ").decode(errors="replace")
            if words and mark in _read(folder / "environ").split(b"\0"):  # a zombie has neither
                found[int(folder.name)] = words.strip()
        return found

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self._tell())
        left: dict[int, str] = {}
        if error is None:
            self.types("midflight down --jobs")
            deadline = time.monotonic() + 30
            while (left := self.processes()) and time.monotonic() < deadline:
                time.sleep(0.05)
        for _ in range(20):
            for pid in self.processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self._home.cleanup()
        assert not left, f"left over: {left}"

    def _tell(self) -> str:
        parts = [self._server_log()]
        for log in sorted(self.home.glob("jobs/*/*/instances/*/log")):
            parts.append(f"--- {log.parent.name} ---\n" + log.read_text(errors="replace")[-2000:])
        return "\n".join(parts)

    def _server_log(self) -> str:
        return "--- server.log ---\n" + _read(self.home / "server.log").decode()[-3000:]


def table_under(header: str, text: str) -> list[dict[str, str]]:
    """The rows of the table whose header line begins with these words, by column name."""
    lines = [line.strip() for line in text.splitlines()]
    start = next(n for n, line in enumerate(lines) if re.split(r"\s{2,}", line)[:1] == [header])
    names = re.split(r"\s{2,}", lines[start])
    rows = []
    for line in lines[start + 1 :]:
        cells = re.split(r"\s{2,}", line)
        if len(cells) != len(names):
            break
        if not set(line) <= {"-", " "}:
            rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
