"""A place for real runs: a home of their own, launchers as processes, and a look at what is left.

Every process below a launcher carries the site's home in its environment; that is how leftovers
are found, whatever session they are in.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import midflight

SOURCES = Path(midflight.__file__).parents[1]


class Launched:
    """A launcher, and what it and its children print, both streams together."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._more = threading.Condition()
        self._closed = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self._lines.append(line.rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self._closed = True
            self._more.notify_all()

    @property
    def lines(self) -> list[str]:
        with self._more:
            return list(self._lines)

    def says(self, text: str, times: int = 1, within: float = 20.0) -> None:
        """Wait until so many lines hold the text."""

        def heard() -> bool:
            return sum(text in line for line in self._lines) >= times

        with self._more:
            assert self._more.wait_for(lambda: heard() or self._closed, within), self._lines
            assert heard(), self._lines

    def ends(self, within: float = 20.0) -> int:
        """Wait until the launcher and all that could print have ended; the exit code."""
        code = self.process.wait(within)
        with self._more:
            assert self._more.wait_for(lambda: self._closed, within), self._lines
        return code

    def send(self, number: int) -> None:
        self.process.send_signal(number)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder  # where launchers are started
        self.home = folder / "home"
        self._mark = f"MIDFLIGHT_HOME={self.home}".encode()
        self.env = {
            **os.environ,
            "MIDFLIGHT_HOME": str(self.home),
            "PYTHONPATH": str(SOURCES),
            "PYTHONUNBUFFERED": "1",
        }

    def launch(self, *arguments: str) -> Launched:
        command = [sys.executable, "-P", "-m", "midflight.run", *arguments]
        return Launched(command, self.env, self.folder)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "midflight.cli.main", *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def status(self, run: str) -> dict[str, Any]:
        done = self.command("status", run, "-o", "json")
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def processes(self, word: str = "") -> dict[int, list[str]]:
        """Process ids and command lines of all that belongs here, if `word` is among the words."""
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal():
                continue
            try:
                environ = (path / "environ").read_bytes().split(b"\0")
                words = (path / "cmdline").read_bytes().decode().split("\0")[:-1]
            except OSError:
                continue  # gone meanwhile
            if self._mark in environ and (not word or word in words):
                found[int(path.name)] = words
        return found

    def members(self, code: str) -> set[int]:
        """The processes that run this code, by `python -c`."""
        return {pid for pid, words in self.processes(code).items() if words[1:3] == ["-c", code]}

    def agent_pid(self, host: str) -> int:
        agents = self.processes("midflight.agent").items()
        (pid,) = (pid for pid, words in agents if words[words.index("--name") + 1] == host)
        return pid

    def pid_of(self, word: str) -> int:
        (pid,) = self.processes(word)
        return pid

    def kill_everything(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def eventually(
    condition: Callable[[], object],
    within: float = 20.0,
    but: Callable[[], object] = lambda: "it did not come true in time",
) -> None:
    """For what gives no event: another process's files, or its end. `but` says what is instead."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, but()
        time.sleep(0.02)
