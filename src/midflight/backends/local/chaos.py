"""Rehearsing failures of one instance, with signals, and by cutting its connections.

Its keeper is spared, as the machine would be: it sees the end and writes it down. `stop` and `cont`
reach every process of the instance, those in sessions of their own included, where /proc tells, and
so does `cut`.

Connections are cut from outside, as a network that fails does. Each socket is borrowed through a
handle on the process, which Linux allows to whoever may debug it, and shut down: both ends see a
broken connection, and nobody is killed. What the process dials afterwards works again. Unix sockets
and sockets that only listen are left alone.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from midflight.backends.local import identity, keeper
from midflight.backends.local.reports import State, read_state
from midflight.errors import Refused, UsageError

Endpoint = tuple[str, int]  # address and port
_PIDFD_GETFD = 438  # the same on every architecture that is left
ROUNDS = 3  # for those who are born while the others are stopped


def rehearse(folder: Path, instance: str, what: str) -> None:
    """kill | stop | cont | cut; Refused if it does not run, or if there is nothing to cut."""
    if what not in ("kill", "stop", "cont", "cut"):
        raise UsageError(f"wanted kill, stop, cont or cut, got {what!r}")
    state = read_state(folder)
    if state is None or not state.alive:
        raise Refused(f"{instance} does not run, so there is nothing to {what}")
    if what == "kill":
        keeper.send(state.pid, signal.SIGKILL, group=True)
    elif what == "cut":
        if not sum(cut(pid) for pid in identity.living(state.mark)):
            raise Refused(f"{instance} has no connection that could be cut")
    else:
        _send_all(state, signal.SIGSTOP if what == "stop" else signal.SIGCONT)


def _send_all(state: State, number: int) -> None:
    keeper.send(state.pid, number, group=True)
    reached: set[int] = set()
    for _ in range(ROUNDS):
        for pid in set(identity.living(state.mark)) - reached:
            reached.add(pid)
            keeper.send(pid, number)


def cut(pid: int, port: int | None = None) -> int:
    """How many connections of the process were cut; Refused where that cannot be done.

    `port`: only those to this port.
    """
    return len(
        {
            ends
            for sock, ends in _connections(pid)
            if port in (None, ends[1][1]) and _shut_down(sock)
        }
    )


def cut_between(pid: int, other: int) -> int:
    """The same for the connections between two processes of this machine."""
    ends = {(theirs, mine) for _, (mine, theirs) in _connections(other)}
    return len({own for sock, own in _connections(pid) if own in ends and _shut_down(sock)})


def _shut_down(sock: socket.socket) -> bool:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other end was quicker
        return False
    return True


def _connections(pid: int) -> Iterator[tuple[socket.socket, tuple[Endpoint, Endpoint]]]:
    """The process's TCP connections, and both ends of each, its own first.

    Each is borrowed, and comes as often as the process has descriptors of it.
    """
    if sys.platform != "linux":
        raise Refused("connections of another process can be cut on Linux only")
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in _sockets(pid):
            borrowed = _borrow(handle, number)
            if borrowed < 0:
                continue
            with socket.socket(fileno=borrowed) as sock:
                if (ends := _ends(sock)) is not None:
                    yield sock, ends
    finally:
        os.close(handle)


def _ends(sock: socket.socket) -> tuple[Endpoint, Endpoint] | None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        return sock.getsockname()[:2], sock.getpeername()[:2]
    except OSError:  # it is not connected to anybody
        return None


def _sockets(pid: int) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if entry.readlink().name.startswith("socket:"):
                    yield int(entry.name)


def _borrow(handle: int, number: int) -> int:
    """A descriptor of ours for one of theirs; -1 if it is closed by now."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = int(libc.syscall(_PIDFD_GETFD, handle, number, 0))
    if found < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
        raise Refused(
            "this system does not let one process of yours cut the connections of another "
            f"({os.strerror(ctypes.get_errno())}); `chaos stop` makes an instance fall silent"
        )
    return found
