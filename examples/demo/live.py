"""A run in a home of its own: started, watched, asked for things, and surely ended."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pauses

from midflight.cli.runs import find_run
from midflight.cli.status import current_status
from midflight.errors import MidflightError
from midflight.protocol.messages import MemberStatus, Status

NAME = "demo"
PATIENCE = 60.0  # seconds for anything, on a machine that has other things to do as well
LOOK = 0.02
MIDFLIGHT = (sys.executable, "-m", "midflight.cli")
TRAIN = Path(__file__).with_name("train.py")


class DemoError(Exception):
    """Something did not go as it should; the message is for the person at the terminal."""


class Live:
    """The run, from start to end. Whatever happens, no process of it is left afterwards."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="midflight-demo-")
        self.folder = Path(self._place.name)
        os.environ["MIDFLIGHT_HOME"] = self._place.name
        train = (sys.executable, str(TRAIN), "--out", self._place.name)
        with (self.folder / "output").open("wb") as output:
            self._launcher = subprocess.Popen(
                [*MIDFLIGHT, "run", "--name", NAME, *self._flags, "--", *train],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._launcher.poll() is None:
                self._launcher.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._launcher.wait(8.0)
            for pid in self.left_over():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._launcher.wait()
        finally:
            self._place.cleanup()

    # --- looking ----------------------------------------------------------------------------

    def logs(self) -> dict[str, list[pauses.Step]]:
        found = {path.stem: path.read_text() for path in self.folder.glob("*.steps")}
        return {name: pauses.parse(text) for name, text in found.items()}

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    def until(self, what: str, reached: Callable[[], bool]) -> float:
        """Wait for something; the moment at which it was there."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if self._launcher.poll() is not None:
                raise self._trouble(f"the run ended (exit code {self._launcher.returncode})", what)
            if time.monotonic() > deadline:
                raise self._trouble(f"{PATIENCE:g} s have passed", what)
            time.sleep(LOOK)
        return time.monotonic()

    def _trouble(self, happened: str, what: str) -> DemoError:
        last = "\n".join(f"    {line}" for line in self.output().splitlines()[-15:])
        return DemoError(f"{happened} before {what}; the run's last lines:\n{last}")

    def members(self) -> list[MemberStatus]:
        """The members of the present world, by rank; none while it is changing."""
        try:
            status: Status = current_status(find_run(NAME))
        except MidflightError:
            return []  # it is not up yet
        return [m for m in status.members if m.rank is not None] if status.phase == "stable" else []

    def until_training(self, size: int) -> float:
        return self.until(f"{size} members were training", lambda: len(self.members()) == size)

    def until_stepping(self, names: list[str], since: float, steps: int = 15) -> float:
        def reached() -> bool:
            logs = self.logs()
            return all(pauses.steps_since(logs.get(n, []), since) >= steps for n in names)

        return self.until(f"{', '.join(names)} had made {steps} steps", reached)

    def left_over(self) -> list[int]:
        """Processes that carry this run's home in their environment (where there is a /proc)."""
        mark = f"MIDFLIGHT_HOME={self._place.name}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return [pid for pid in found if pid != os.getpid()]

    # --- doing ------------------------------------------------------------------------------

    def command(self, *words: str) -> str:
        """Run `midflight ...` as a person would, and return what it printed."""
        done = subprocess.run(
            [*MIDFLIGHT, *words], capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode != 0:
            raise DemoError(f"`midflight {' '.join(words)}` failed: {done.stdout}{done.stderr}")
        return done.stdout.rstrip()

    def end(self) -> int:
        """Let the script come to its end, a whole epoch from now; its exit code."""
        beside = self.folder / "epochs.new"
        beside.write_text(str(pauses.current_epoch(self.logs()) + 2))
        beside.rename(self.folder / "epochs")
        try:
            return self._launcher.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise self._trouble(f"{PATIENCE:g} s have passed", "the script ended") from None
