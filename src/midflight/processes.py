"""Signals to other processes, and what the system tells about them.

It is no error if a process is gone by the time of a signal. Where there is no /proc, `ps` is asked,
or nothing is known. An agent's guard and an instance's keeper run without Midflight on their path,
so they have helpers of their own.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

PROC = Path("/proc")
HAS_PROC = (PROC / "self").exists()


def send_signal(pid: int, *numbers: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        for number in numbers:
            os.kill(pid, number)


def kill_group(leader: int) -> None:
    """SIGKILL to the whole process group; a session that this process leads has one of its own."""
    # PermissionError: macOS, when only zombies are left in the group
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def pids() -> list[int]:
    """Of all processes; none where there is no /proc."""
    return [int(name) for name in os.listdir(PROC) if name.isdecimal()] if HAS_PROC else []


def command_line(pid: int) -> list[str]:
    """The words of a process's command line; none if there is no such process."""
    if HAS_PROC:
        try:
            return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    return _ask_ps(pid, "-ww", "-o", "command=").split()


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from its third field on, the state; OSError if there is no such process."""
    stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()  # the name before it may hold anything


def state(pid: int) -> str:
    """`running`, `stopped` or `gone`, which is also what is left of one that was not reaped yet."""
    try:
        letter = stat_fields(pid)[0] if HAS_PROC else _ask_ps(pid, "-o", "stat=").strip()[:1]
    except OSError:
        return "gone"
    if letter in ("", "Z", "X"):
        return "gone"
    return "stopped" if letter == "T" else "running"  # "t": a debugger looks at it


def _ask_ps(pid: int, *words: str) -> str:
    done = subprocess.run(["ps", *words, "-p", str(pid)], capture_output=True, text=True)
    return done.stdout
