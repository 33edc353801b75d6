"""The guard: a tiny process that outlives its agent by the moment it takes to clear up.

It reads lines from a pipe that only the agent writes to: `+PGID` and `-PGID` name the process
groups alive. The end of the pipe is the end of the agent, however it came; then the groups that
are left are killed, and, where /proc tells, every process that carries the agent's mark in its
environment, so that leaving the group does not save it. Run by its path, on an interpreter that
loads nothing else; it imports nothing of Midflight.
"""

import os
import signal
import sys


def main(mark: bytes) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in read_groups():
        kill(-group)
    for _ in range(10):  # what is killed may have forked meanwhile
        left = marked(mark)
        for pid in left:
            kill(pid)
        if not left:
            break


def read_groups() -> set[int]:
    """The groups that are alive when the agent ends."""
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        if line[:1] == b"+":
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    return groups


def kill(target: int) -> None:
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:  # gone already
        return


def marked(mark: bytes) -> list[int]:
    if not os.path.isdir("/proc/self"):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and carries(name, mark)]


def carries(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:  # somebody else's process, or none any more
        return False


if __name__ == "__main__":
    main(sys.argv[1].encode())
