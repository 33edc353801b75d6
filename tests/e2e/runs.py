"""Real runs for the tests: `midflight run` in a process of its own, watched from outside.

A Run is a context manager. However the test ends, everything that it started is ended too, and
`left_over` says whether anything survived an end that should have been complete: processes are
recognised by the run's own MIDFLIGHT_HOME in their environment.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from midflight.errors import MidflightError
from midflight.protocol import codec
from midflight.protocol.messages import StatusRequested
from midflight.protocol.wire import dial_blocking
from midflight.rundir import RunDir

COUNTING = Path(__file__).with_name("counting.py")
PATIENCE = 90.0  # a generous deadline for anything on a loaded machine
EPOCHS, STEPS = 10, 100  # of counting.py, and steps of each epoch


class Run:
    """`warm`: members are forked from one process that has imported torch, which takes a third of
    the processor time; 0 starts each of them cold, as it is without that option.
    """

    def __init__(
        self,
        home: Path,
        *flags: str,
        script: Sequence[str] | None = None,
        np: int = 3,
        warm: int = 1,
    ) -> None:
        self.home = home
        self.out = home / "out"
        self.out.mkdir(parents=True, exist_ok=True)
        command = script or ["python", str(COUNTING), "--out", str(self.out)]
        self._argv = [
            sys.executable, "-m", "midflight.run", "--name", "job", "-np", str(np),
            "--warm", str(warm), *flags, "--", *command,
        ]  # fmt: skip
        self.env = {
            **os.environ,
            "MIDFLIGHT_HOME": str(home),
            "PYTHONFAULTHANDLER": "1",  # for `_last_words`
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.folder = RunDir.of("job", self.env)
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self.epochs = EPOCHS

    def __enter__(self) -> Self:
        self.launcher = subprocess.Popen(
            self._argv,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self.launcher,), daemon=True)
        self._reader.start()
        return self

    def _read(self, launcher: subprocess.Popen[bytes]) -> None:
        assert launcher.stdout is not None
        for raw in launcher.stdout:
            with self._heard:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self._heard.notify_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, subprocess.TimeoutExpired):
            self._last_words()
        for _ in range(20):
            pids = self.left_over()
            if not pids:
                break
            for pid in pids:
                _kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.launcher.wait(PATIENCE)
        if error is not None:
            print("\n".join(["--- output of the run ---", *self.lines[-200:]]))

    def _last_words(self) -> None:
        """Where the members stand that should have ended: each prints its threads, and dies."""
        for pid in self.left_over():
            if b"MIDFLIGHT_MEMBER=" in _read_quietly(Path(f"/proc/{pid}/environ")):
                _kill(pid, signal.SIGABRT)
        time.sleep(2.0)  # for their words to come through

    # --- looking ----------------------------------------------------------------------------

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def await_line(self, pattern: str, timeout: float = PATIENCE) -> str:
        """The first line that matches, as soon as there is one."""
        deadline = time.monotonic() + timeout
        with self._heard:
            while True:
                for line in self.lines:
                    if re.search(pattern, line):
                        return line
                left = deadline - time.monotonic()
                if left <= 0 or not self._heard.wait(left):
                    raise AssertionError(f"no line matched {pattern!r} in {timeout} s")

    def command(self, *args: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "midflight.cli.main", *args],
            env=self.env, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        """What `midflight status -o json` shows, asked for without starting a process."""
        folder = self.folder
        wire = dial_blocking(folder.read_address() or "", "client", "test", folder.read_token())
        try:
            wire.send(StatusRequested())
            status: dict[str, Any] = codec.encode(wire.receive())
            return status
        finally:
            wire.close()

    def await_status(
        self, wanted: Callable[[dict[str, Any]], object], timeout: float = PATIENCE
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        status: dict[str, Any] = {}
        while time.monotonic() < deadline and self.launcher.poll() is None:
            try:
                status = self.status()
                if wanted(status):
                    return status
            except MidflightError:
                pass  # it is not up yet, or being started again
            time.sleep(0.02)
        raise AssertionError(f"the job did not come to what was wanted; last: {status}")

    def await_stable(self, size: int, beyond: int = 0) -> dict[str, Any]:
        """Training with so many members, past a step."""
        return self.await_status(
            lambda s: s["phase"] == "stable" and len(ranked(s)) == size and s["step"] > beyond
        )

    def progress(self) -> dict[str, Any]:
        """Wait until a few more steps were completed: training goes on."""
        step = self.status()["step"]
        return self.await_status(lambda s: s["phase"] == "stable" and s["step"] > step + 5)

    # --- doing ------------------------------------------------------------------------------

    def resize(self, *args: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        return self.command("resize", "job", *args, timeout=timeout)

    def begin_resize(self, *args: str) -> subprocess.Popen[str]:
        """The same, without waiting for its end."""
        return subprocess.Popen(
            [sys.executable, "-m", "midflight.cli.main", "resize", "job", *args],
            env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def hurry(self) -> None:
        """No more pauses, and, for a counting script, the end a whole epoch from now."""
        with contextlib.suppress(MidflightError):
            self.epochs = min(self.status()["step"] // STEPS + 2, EPOCHS)
        beside = self.out / "hurry.new"
        beside.write_text(str(self.epochs))
        beside.rename(self.out / "hurry")

    def finish(self) -> int:
        self.hurry()
        return self.wait()

    def wait(self, timeout: float = PATIENCE) -> int:
        code = self.launcher.wait(timeout)
        self._reader.join(10)
        return code

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.out.glob("m*.json"))]

    def left_over(self) -> list[int]:
        """Processes of this run that are still there."""
        mark = f"MIDFLIGHT_HOME={self.home}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and int(folder.name) != os.getpid():
                environment = _read_quietly(folder / "environ").split(b"\0")
                if mark in environment and not _is_zombie(folder):
                    found.append(int(folder.name))
        return found


def ranked(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [member for member in status["members"] if member["rank"] is not None]


def by_rank(status: dict[str, Any], rank: int) -> dict[str, Any]:
    return next(member for member in status["members"] if member["rank"] == rank)


def kill(*members: dict[str, Any], how: int = signal.SIGKILL) -> None:
    for member in members:
        os.kill(member["pid"], how)


def agents_of(run: Run) -> dict[str, int]:
    """The agents' process numbers by host."""
    found = {}
    for pid in run.left_over():
        words = _read_quietly(Path(f"/proc/{pid}/cmdline")).decode().split("\0")
        if "midflight.agent" in words and "--name" in words:
            found[words[words.index("--name") + 1]] = pid
    return found


def coordinator_of(run: Run) -> int:
    for pid in run.left_over():
        if b"midflight.coordinator" in _read_quietly(Path(f"/proc/{pid}/cmdline")):
            return pid
    raise AssertionError("no coordinator is running")


def check_complete(run: Run, epochs: int | None = None) -> None:
    """Every sample exactly once an epoch, the same weights everywhere, nobody left over."""
    epochs = epochs or run.epochs
    results = run.results()
    assert results, run.output
    for result in results:
        assert (result["least"], result["most"]) == (epochs, epochs), result
    assert len({result["weights"] for result in results}) == 1
    assert len({result["step"] for result in results}) == 1
    assert run.left_over() == []


def _read_quietly(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _is_zombie(folder: Path) -> bool:
    return b") Z " in _read_quietly(folder / "stat")


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
