"""A cluster in a home of its own: its server, one job, and the certainty that nothing is left."""

import contextlib
import os
import shlex
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

from midflight.cli.runs import current_status, find_training
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
    """The cluster, from start to end. Whatever happens, no process of it is left afterwards."""

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="midflight-demo-")
        self.folder = Path(self._place.name)
        os.environ["MIDFLIGHT_HOME"] = self._place.name
        os.environ.pop("KUBECONFIG", None)  # this is about one machine
        os.environ["MIDFLIGHT_LOG_FORMAT"] = "text"
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for _ in range(20):
                for pid in self.left_over():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        finally:
            self._place.cleanup()

    @property
    def training(self) -> str:
        """The job's command."""
        return shlex.join(["python", str(TRAIN), "--out", str(self.folder)])

    # --- looking ----------------------------------------------------------------------------

    def logs(self) -> dict[str, list[pauses.Step]]:
        found = {path.stem: path.read_text() for path in self.folder.glob("*.steps")}
        return {name: pauses.parse(text) for name, text in found.items()}

    def until(self, what: str, reached: Callable[[], bool]) -> float:
        """Wait for something; the moment at which it was there."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if time.monotonic() > deadline:
                raise DemoError(f"{PATIENCE:g} s have passed before {what}\n{self._last_words()}")
            time.sleep(LOOK)
        return time.monotonic()

    def _last_words(self) -> str:
        shown = [self._quietly("get", NAME, "-e"), self._quietly("logs", NAME, "--tail", "15")]
        return "\n".join(f"    {line}" for text in shown for line in text.splitlines())

    def members(self) -> list[MemberStatus]:
        """The members of the present world, by rank; none while it is changing."""
        try:
            status: Status = current_status(find_training(NAME).folder)
        except MidflightError:
            return []  # it is not up yet
        return [m for m in status.members if m.rank is not None] if status.phase == "stable" else []

    def until_training(self, size: int) -> None:
        self.until(f"{size} members were training", lambda: len(self.members()) == size)

    def until_without(self, lost: str) -> float:
        """Wait until a world stands in which this member is no more."""

        def gone() -> bool:
            names = [member.name for member in self.members()]
            return bool(names) and lost not in names

        return self.until(f"the others went on without {lost}", gone)

    def until_stepping(self, names: list[str], since: float, steps: int = 5) -> float:
        """Wait until each of these members has made so many steps since a moment."""

        def stepping() -> bool:
            logs = self.logs()
            return all(pauses.steps_since(logs.get(name, ()), since) >= steps for name in names)

        return self.until(f"{', '.join(names)} went on", stepping)

    def left_over(self) -> list[int]:
        """Processes that carry this home in their environment (where there is a /proc)."""
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
        done = _run(words)
        if done.returncode != 0:
            raise DemoError(f"`midflight {' '.join(words)}` failed: {done.stdout}{done.stderr}")
        return done.stdout.rstrip()

    def _quietly(self, *words: str) -> str:
        return _run(words).stdout

    def end(self) -> None:
        """Let the script come to its end, a whole epoch from now."""
        beside = self.folder / "epochs.new"
        beside.write_text(str(pauses.current_epoch(self.logs()) + 2))
        beside.rename(self.folder / "epochs")


def _run(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MIDFLIGHT, *words], capture_output=True, text=True, timeout=PATIENCE)
