"""Processes that end with their case, waits that end at a deadline, and what was said meanwhile.

Everything a case starts is a process group of its own and carries a mark in its environment. At the
end, Ctrl-C included, the groups are killed, and then whatever still carries the mark: torchrun and
Midflight put their workers into sessions of their own, where a group's signal does not reach.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.record import FOLDER, LIMIT_FILE, PARENT
from bench.steps import Line, parse

MARK = "BENCH_MARK"
ROOT = Path(__file__).resolve().parent.parent


class BenchError(Exception):
    """Something did not come about in time, or a process ended that should not have."""


@dataclass
class Run:
    """One running job of one system: its folder, its processes, its step log.

    A context manager; nothing of it is left when it is closed.
    """

    name: str
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        temporary = tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-")
        self.folder = Path(self._stack.enter_context(temporary))
        self._mark = uuid.uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        self._read: dict[Path, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for process in self._started:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            _kill_marked(self._mark)
            for process in self._started:
                process.wait()
        finally:
            self._stack.close()

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `python ARGUMENTS` in a process group of its own, its output in a file."""
        output = self.folder / f"{len(self._started)}.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**self.environment(), **(env or {})},
                cwd=ROOT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._started.append(process)
        return process

    def environment(self) -> dict[str, str]:
        own = {
            MARK: self._mark,
            FOLDER: str(self.folder),
            PARENT: str(os.getpid()),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "PYTHONUNBUFFERED": "1",
        }
        return {**os.environ, **own}

    def poll(self) -> list[Line]:
        """All lines so far; reads only what is new."""
        for path in self.folder.glob("*.steps"):
            with path.open() as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            self.lines.extend(parse(whole))
        return self.lines

    def allow(self, limit: int) -> None:
        """Let the training processes go on up to that step."""
        fresh = self.folder / f"{LIMIT_FILE}.new"
        fresh.write_text(str(limit))
        fresh.rename(self.folder / LIMIT_FILE)

    def wait(
        self,
        what: str,
        done: Callable[[list[Line]], object],
        seconds: float,
        unharmed: bool = False,
    ) -> None:
        """Until the lines satisfy `done`; else an error with the end of everyone's output.

        Where nobody has been harmed yet, the end of any process is an error at once.
        """
        deadline = time.monotonic() + seconds
        while not done(self.poll()):
            ended = [process.poll() is not None for process in self._started]
            if time.monotonic() > deadline:
                raise self._failure(f"{what}: not within {seconds:g} s")
            if all(ended) or (unharmed and any(ended)):
                raise self._failure(f"{what}: {sum(ended)} of its processes ended")
            time.sleep(0.05)

    def _failure(self, why: str) -> BenchError:
        return BenchError(f"{self.name}: waited for {why}\n{self.tails()}")

    def tails(self, count: int = 12) -> str:
        parts = []
        for number, process in enumerate(self._started):
            text = (self.folder / f"{number}.out").read_text(errors="replace").splitlines()
            parts.append(f"--- {number} (pid {process.pid}, exit code {process.poll()})")
            parts += [f"    {line}" for line in text[-count:]]
        last = {line.who: line for line in self.lines}
        parts += [f"--- last step of {who}: {line}" for who, line in last.items()]
        return "\n".join(parts)


def command(arguments: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
    """Run `python ARGUMENTS` to its end; its output, or an error that shows it."""
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(arguments)}: not within {seconds:g} s: {error}") from error
    if done.returncode:
        output = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise BenchError(f"{' '.join(arguments)}: exit code {done.returncode}\n{output}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    """In the child, before exec: SIGKILL to the benchmark leaves nothing running either."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _kill_marked(mark: str) -> None:
    """Until none is left: one of them may have started another while we looked."""
    for _ in range(100):
        found = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, mark)
        ]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise BenchError(f"these processes do not die: {found}")


def _has(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended meanwhile, or is not ours
        return False
