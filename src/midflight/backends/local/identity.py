"""Which process is meant: a pid alone may belong to somebody else tomorrow.

A process is known by its pid, the time at which it started, and the boot of the machine. One that
has ended and was not reaped yet counts as gone. What instances have started is found by the mark
in its environment, where /proc tells; elsewhere nobody carries one.
"""

import os
import signal
import time
from pathlib import Path

from midflight.backends.local import keeper
from midflight.deadlines import KILLED


def start_time(pid: int) -> str:
    """An empty text if there is no such process, or only what is left of one."""
    if pid <= 1:
        return ""
    try:
        if keeper.LINUX and keeper.stat_fields(pid)[0] in ("Z", "X"):
            return ""
    except (OSError, IndexError):
        return ""
    return keeper.start_time(pid)


def boot() -> str:
    """Another one after each start of the machine, where that can be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_same(pid: int, started: str, since: str = "") -> bool:
    """Whether the process that started then still runs. `since`: the boot it was started after."""
    if not started or since not in ("", boot()):
        return False
    return start_time(pid) == started


def kill_marked(mark: str) -> int:
    """SIGKILL to everybody who carries it, until nobody does; how many there were."""
    killed: set[int] = set()
    deadline = time.monotonic() + KILLED
    while (found := living(mark)) and time.monotonic() < deadline:
        for pid in found:
            kill_if_marked(pid, mark)
        killed.update(found)
        time.sleep(0.01)
    return len(killed)


def living(mark: str) -> list[int]:
    return [pid for pid in keeper.marked(mark) if start_time(pid)]


def kill_if_marked(pid: int, mark: str) -> None:
    """Through a handle where there are some, so that it hits the process that was looked at."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):  # no handles here, or it is gone
        if keeper.carries(pid, mark):
            keeper.send(pid, signal.SIGKILL)
        return
    try:
        if keeper.carries(pid, mark):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
