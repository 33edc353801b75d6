"""Long-running programs of a plane: started with a log, awaited, stopped, and never left over.

Each is told by the kernel to die when the thread that started it ends, so that nothing survives a
test run that is killed. Start them from a thread that lives as long as they should.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from midflight.prctl import die_with

START_SECONDS = 60.0
STOP_SECONDS = 10.0
_LAST_WORDS = 3000


class StartFailed(RuntimeError):
    """A program ended, or did not answer in time; the message ends with its log."""


class Daemon:
    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        me = os.getpid()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(command),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: die_with(me),
            )

    def running(self) -> bool:
        return self.process.poll() is None

    def await_ready(self, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running():
                raise StartFailed(self._words(f"ended with status {self.process.returncode}"))
            if time.monotonic() > deadline:
                raise StartFailed(self._words(f"was not ready within {seconds:g} s"))
            time.sleep(0.02)  # these programs have no event to await

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Asks first, then kills."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _words(self, what: str) -> str:
        text = self.log.read_text(errors="replace")[-_LAST_WORDS:]
        return f"{self.name} {what}; the end of {self.log}:\n{text}"
