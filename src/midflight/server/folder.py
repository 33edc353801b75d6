"""The server's folder: whose it is, who holds it, and the socket in it.

The folder is 0700 and this user's. `server.lock` is held by the one server as long as it lives,
and holds its process id for people. The socket is made under another name and renamed when it
listens, so whoever finds it can connect; one that nobody answers on is replaced.
"""

import contextlib
import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from midflight.errors import Refused, UsageError
from midflight.home import check_owner, make_private

SOCKET = "server.sock"
LOCK = "server.lock"
LOG = "server.log"
JOURNAL = "journal.db"
HELD = 3  # the exit code of a server that finds another one
LONGEST_SOCKET_PATH = 107  # bytes, a limit of the system
_ROOM_FOR_NAME = len(".server.sock.4194304") - len(SOCKET)  # while it is being made


class Held(Refused):
    """Another server has the folder."""


def make_home(home: Path) -> None:
    if len(os.fsencode(home / SOCKET)) + _ROOM_FOR_NAME > LONGEST_SOCKET_PATH:
        raise UsageError(
            f"{home} is too long for a socket in it; choose a MIDFLIGHT_HOME of at most"
            f" {LONGEST_SOCKET_PATH - _ROOM_FOR_NAME - len(SOCKET) - 1} bytes"
        )
    try:
        make_private(home)
    except OSError as error:
        raise UsageError(
            f"wanted a folder for the server at {home}: {error.strerror};"
            " choose another MIDFLIGHT_HOME"
        ) from None


def take_lock(home: Path, inherited: int | None = None) -> IO[str]:
    """Held until it is closed, or the process ends. A server inherits it from who starts it."""
    if inherited is None:
        inherited = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.set_inheritable(inherited, False)
    lock = os.fdopen(inherited, "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise Held(
            f"another server has {home} (process id {holder}); use that one, end it with"
            " `midflight down`, or choose another MIDFLIGHT_HOME"
        ) from None
    return lock


def sign(lock: IO[str]) -> None:
    """Say in the lock who has it."""
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def listen(home: Path) -> socket.socket:
    """Called with the lock held: a socket that is there already has nobody behind it."""
    path = home / SOCKET
    with contextlib.suppress(FileNotFoundError):
        check_owner(path, path.lstat())
    for leftover in home.glob(f".{SOCKET}.*"):
        leftover.unlink(missing_ok=True)
    temporary = home / f".{SOCKET}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(temporary))
        temporary.chmod(0o600)
        listener.listen(512)
        temporary.replace(path)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {path}: {error.strerror}; check the folder and its disk"
        ) from None
    return listener
