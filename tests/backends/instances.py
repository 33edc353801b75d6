"""Instances for tests: plans for keepers, keepers run by hand, and ends that are awaited.

A process's end is awaited through its handle, a file's content by looking; both with a deadline.
"""

import asyncio
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from midflight.backends.local import identity, keeper

PATIENCE = 30.0
T = TypeVar("T")


def plan(*argv: str, attempt: int = 1, **others: Any) -> dict[str, Any]:
    return {
        "argv": list(argv),
        "env": {"PATH": os.environ["PATH"]},
        "cwd": "/",
        "grace": 20.0,
        "attempt": attempt,
        "mark": uuid.uuid4().hex,
        "limits": {"memory": None, "cpus": None, "cgroup": ""},
        "log_bytes": 10 << 20,
        "log_files": 5,
        **others,
    }


def shell(script: str, **others: Any) -> dict[str, Any]:
    return plan("sh", "-c", script, **others)


def python(code: str, **others: Any) -> dict[str, Any]:
    return plan(sys.executable, "-I", "-S", "-u", "-c", code, **others)


@contextlib.contextmanager
def kept(folder: Path, order: dict[str, Any]) -> Iterator["subprocess.Popen[bytes]"]:
    """A keeper at work, and nobody of it afterwards."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(order))
    words = [sys.executable, "-I", "-S", keeper.__file__, str(folder)]
    process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        identity.kill_marked(order["mark"])


def state(folder: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return {}
    return content


def texts(folder: Path) -> list[str]:
    """What was printed, oldest first, without times."""
    found = ""
    for number in (*range(20, 0, -1), 0):
        path = folder / (f"log.{number}" if number else "log")
        found += path.read_text() if path.exists() else ""
    return [line.split(" ", 3)[3] for line in found.splitlines()]


def until(find: Callable[[], T]) -> T:
    """What is found, as soon as it is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := find()):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.005)
    return found


def started(folder: Path) -> int:
    until(lambda: "started_at" in state(folder))
    return int(state(folder)["pid"])


def printed(folder: Path, word: str) -> list[str]:
    """The words after this one, in the line that begins with it."""

    def find() -> list[list[str]]:
        lines = [line.split() for line in texts(folder)] if (folder / "log").exists() else []
        return [line for line in lines if line[:1] == [word]]

    return until(find)[0][1:]


def ended(pid: int) -> None:
    """Comes back when the process is gone."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            assert select.select([handle], [], [], PATIENCE)[0], f"{pid} is still there"
        finally:
            os.close(handle)


def send(pid: int, number: signal.Signals) -> None:
    assert pid > 1, f"{pid} is no process of this test"
    os.kill(pid, number)


def scenario(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Lets a test be a coroutine."""

    @functools.wraps(story)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(story(*arguments, **named))

    return run
