"""The processes below an agent: started in sessions of their own, signalled, looked at, reaped.

Every one of them is known by the pid of its session's leader, which is the id of its process
group too; the guard is told of each. Deaths are found by SIGCHLD, so within a fraction of a
millisecond and the same way on every Unix. Whoever dies takes its whole group along. What the
members mean is not known here.
"""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from midflight import async_timeout, descriptors, prctl
from midflight.agent import guard
from midflight.processes import kill_group, pids, send_signal, state

OnExit = Callable[[int], None]  # the exit code; negative: the number of the signal
_GUARD_PAUSE = 1.0


@dataclass(frozen=True)
class Channels:
    """The file descriptors a new process is given."""

    stdout: int
    stderr: int
    passed: tuple[int, ...] = ()


@dataclass
class _Child:
    on_exit: OnExit
    popen: subprocess.Popen[bytes] | None  # None: forked from the template, and adopted
    guarded: bool = True


class Processes:
    def __init__(self, mark: str) -> None:
        """`mark` is the environment entry that everything below this agent carries."""
        self._mark = mark
        self._children: dict[int, _Child] = {}
        self._guard_pipe = -1
        self._guard_pid = 0
        self._empty = asyncio.Event()
        self._closing = False
        self.can_adopt = False  # whether processes forked by others can become ours

    def open(self) -> None:
        self.can_adopt = prctl.adopt_orphans()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
        self._start_guard()

    def spawn(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        channels: Channels,
        on_exit: OnExit,
    ) -> int:
        """Start a process and return its pid; OSError if it cannot be started."""
        popen = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=channels.stdout,
            stderr=channels.stderr,
            pass_fds=channels.passed,
            start_new_session=True,
            # Only this thread forks: the signal comes when the forking thread ends.
            preexec_fn=functools.partial(_become_a_member, os.getpid()),
        )
        self._add(popen.pid, _Child(on_exit, popen))
        return popen.pid

    def adopt(self, pid: int, on_exit: OnExit) -> None:
        """Watch over a process that became a child of this one, and leads a session already."""
        self._add(pid, _Child(on_exit, None))

    def rededicate(self, pid: int, on_exit: OnExit) -> None:
        """From now on somebody else wants to know when this process ends."""
        self._children[pid].on_exit = on_exit

    async def close(self, patience: float = 2.0) -> None:
        """Kill what is left and wait for it, and for the guard."""
        self._closing = True
        for pid, child in self._children.items():
            if child.guarded:
                kill_group(pid)
        self._close_guard_pipe()
        with contextlib.suppress(TimeoutError):
            async with async_timeout.timeout(patience):
                while self._children:
                    self._empty.clear()
                    await self._empty.wait()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def _add(self, pid: int, child: _Child) -> None:
        self._children[pid] = child
        self._tell_guard(f"+{pid}\n")

    def reap(self) -> None:
        """Bury whoever has died; done by itself, and earlier if somebody cannot wait."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self._children.pop(pid, None)
            if child is not None:  # None: a stray whose parent ended; reaping was all it needed
                self._bury(pid, child, os.waitstatus_to_exitcode(status))
        if not self._children:
            self._empty.set()

    def _bury(self, pid: int, child: _Child, code: int) -> None:
        if child.popen is not None:
            child.popen.returncode = code  # or it would try to wait by itself
        if child.guarded:
            kill_group(pid)
            self._tell_guard(f"-{pid}\n")
        child.on_exit(code)

    def _start_guard(self) -> None:
        read, self._guard_pipe = os.pipe()
        os.set_blocking(self._guard_pipe, False)
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard.__file__)), self._mark],
            cwd="/",
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read)
        self._guard_pid = popen.pid
        self._children[popen.pid] = _Child(self._guard_ended, popen, guarded=False)
        for pid, child in self._children.items():
            if child.guarded:
                self._tell_guard(f"+{pid}\n")

    def _guard_ended(self, code: int) -> None:
        self._close_guard_pipe()
        if not self._closing:
            asyncio.get_running_loop().call_later(_GUARD_PAUSE, self._restart_guard)

    def _restart_guard(self) -> None:
        if not self._closing:
            self._start_guard()

    def _tell_guard(self, line: str) -> None:
        if self._guard_pipe < 0:
            return  # it is being replaced, and the next one is told everything
        try:
            os.write(self._guard_pipe, line.encode())
        except OSError:  # gone, or it has not read for so long that the pipe is full: take another
            send_signal(self._guard_pid, signal.SIGKILL)

    def _close_guard_pipe(self) -> None:
        if self._guard_pipe >= 0:
            os.close(self._guard_pipe)
            self._guard_pipe = -1


def probe(leader: int) -> str:
    """`running`, `stopped` or `gone`; one process of the group that is stopped holds up all.

    The leader may be a shell that waits for the script, or a script that waits for its loaders.
    """
    found = state(leader)
    if found == "running" and any(state(pid) == "stopped" for pid in _group(leader)):
        return "stopped"
    return found


def _group(leader: int) -> list[int]:
    """The processes whose group that leader leads."""
    found = []
    for pid in pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == leader:
                found.append(pid)
    return found


def _become_a_member(agent: int) -> None:
    """In the child, between fork and exec."""
    prctl.die_with(agent)
    descriptors.restore_limit()
