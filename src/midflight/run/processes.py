"""Child processes of the launcher, and agents that a former launcher has left behind.

Each child leads a session of its own, so that Ctrl-C reaches the launcher alone, and what it has
started can be killed with it. A process found again is no child: that it has ended is seen by
looking, and how is not known.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import midflight
from midflight.backoff import LOOK_RARELY
from midflight.processes import command_line
from midflight.python310 import module_words


class Child(Protocol):
    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """How it ended: its exit code, or minus the number of the signal that ended it."""
        ...


class FoundAgain:
    """A process that was not started here. A zombie has no command line, so it counts as gone."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._words = command_line(pid)

    async def wait(self) -> int:
        while self._words and command_line(self.pid) == self._words:  # noqa: ASYNC110 - see above
            await asyncio.sleep(LOOK_RARELY)
        return 1


async def start_module(
    module: str,
    arguments: Sequence[str],
    *,
    quiet: bool,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Child:
    """`python -m module` in a session of its own; `quiet` drops its stdout.

    What others must not see goes into `variables`: arguments are shown to every user.
    """
    return await asyncio.create_subprocess_exec(
        *_words(module),
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if quiet else None,
        start_new_session=True,
        env={**os.environ, **variables},
    )


def find_agents(noted: dict[str, int], token_file: str) -> dict[str, int]:
    """Those of the noted agents that are still alive, and still what they were."""
    return {
        host: pid
        for host, pid in noted.items()
        if {"midflight.agent", "--name", host, token_file} <= set(command_line(pid))
    }


def describe_end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _words(module: str) -> list[str]:
    """It must not take a file in the current folder for a module of its own."""
    package = Path(midflight.__file__).resolve().parent
    beside = package.parent == Path.cwd()
    return [sys.executable, "-m", module] if beside else module_words(module)
