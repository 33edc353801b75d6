"""The processes of one run on this machine, and signals that are taken back whatever happens.

A process is struck only if it is this user's own and stands below an agent, or is the coordinator,
of the run that was named. It is held by a handle, so that a number that was given away since is
never hit. A stopped process goes on when its stopper ends, however that ends: a small guard process
has the list of those that are stopped, and sends SIGCONT when the line to it breaks.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from midflight.processes import PROC, command_line, pids, send_signal, stat_fields
from midflight.rundir import RunDir

_MOST_ANCESTORS = 20


class Handle:
    """One process; a context manager that lets go of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> "Handle":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def send(self, number: int) -> bool:
        """False if it has ended."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True


class Guard:
    """Stops processes so that none of them stays stopped."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the others
        )

    @contextlib.contextmanager
    def stopped(self, process: Handle) -> Iterator[bool]:
        """Inside it stands still; False if it has ended before."""
        self._say(process.pid)
        try:
            yield process.send(signal.SIGSTOP)
        finally:
            process.send(signal.SIGCONT)
            self._say(-process.pid)

    def _say(self, number: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


def coordinator_of(folder: RunDir) -> int | None:
    """The run's coordinator, None if it is not a process here."""
    path = str(folder.path.absolute())
    for pid in pids():
        if {"midflight.coordinator", path} <= set(command_line(pid)):
            return pid if is_own(pid) else None
    return None


def is_member(pid: int, folder: RunDir) -> bool:
    """Whether it is a training process of this run, and this user's."""
    return pid > 1 and is_own(pid) and _is_below_agent(pid, str(folder.token_file.absolute()))


def is_own(pid: int) -> bool:
    try:
        return (PROC / str(pid)).stat().st_uid == os.geteuid()
    except OSError:
        return False


def _is_below_agent(pid: int, token_file: str) -> bool:
    for _ in range(_MOST_ANCESTORS):
        pid = _parent(pid)
        if pid <= 1:
            return False
        if {"midflight.agent", token_file} <= set(command_line(pid)):
            return True
    return False


def _parent(pid: int) -> int:
    try:
        return int(stat_fields(pid)[1])
    except (OSError, IndexError, ValueError):
        return 0


def main() -> None:
    """The guard: hears who is stopped, and when nobody speaks any more, lets all of them go on."""
    stopped: set[int] = set()
    for line in sys.stdin:
        number = int(line)
        if number > 0:
            stopped.add(number)
        else:
            stopped.discard(-number)
    for pid in stopped:
        with contextlib.suppress(PermissionError):
            send_signal(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
