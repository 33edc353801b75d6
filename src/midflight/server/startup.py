"""Finding the server, or starting it: what the command line does first.

`ensure` is safe when several commands do it at once: the one that gets the server's lock starts the
server and hands the lock on to it, the others wait for its socket. Nothing heavy is imported here
before it is needed.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import midflight
from midflight.deadlines import SERVER_START
from midflight.errors import Unreachable
from midflight.home import check_owner
from midflight.server.folder import LOCK, LOG, SOCKET, Held, make_home, take_lock

if TYPE_CHECKING:
    import subprocess

    from midflight.client import Client

PAUSE = 0.02  # seconds between two looks


def running(home: Path) -> "Client | None":
    """The server of this folder, if one listens."""
    import socket

    from midflight.client import Client

    path = home.absolute() / SOCKET
    try:
        check_owner(path, path.lstat())
        with socket.socket(socket.AF_UNIX) as attempt:
            attempt.settimeout(5.0)
            attempt.connect(str(path))
    except TimeoutError:
        raise Unreachable(f"the server does not answer on {path}; see {home / LOG}") from None
    except OSError:
        return None
    return Client(path)


def ensure(home: Path) -> "Client":
    """The server of this folder; it is started if there is none."""
    deadline = time.monotonic() + SERVER_START
    said = _size(home / LOG)
    process: subprocess.Popen[bytes] | None = None
    while (client := running(home)) is None or not _answers(client):
        if process is None:
            process = _start_if_free(home.absolute())
        elif process.poll() is not None:
            raise Unreachable(f"the server did not start: {last_words(home, said)}")
        if time.monotonic() > deadline:
            raise Unreachable(
                f"the server did not answer within {SERVER_START:g} s: {last_words(home, said)}"
            )
        time.sleep(PAUSE)
    return client


def _answers(client: "Client") -> bool:
    """One that listens may still be taking up its jobs, or be about to end."""
    try:
        client.status()
    except Unreachable:
        return False
    return True


def wait_for_end(home: Path, within: float) -> bool:
    """Whether no server has the folder any more, by then at the latest."""
    import fcntl

    deadline = time.monotonic() + within
    try:
        lock = (home / LOCK).open("r")
    except FileNotFoundError:
        return True
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
            time.sleep(PAUSE)


def last_words(home: Path, since: int) -> str:
    """What the server's log has got since it was so many bytes long, its end, in one line."""
    path = home / LOG
    try:
        with path.open("rb") as file:
            file.seek(max(since if since <= _size(path) else 0, _size(path) - 4096))
            said = file.read().decode(errors="replace").split("\n")
    except OSError as error:
        return f"it left no log at {path} ({error.strerror})"
    kept = [line.removeprefix("midflight: error: ").strip() for line in said if line.strip()]
    return f"{' | '.join(kept[-3:]) or 'it said nothing'} (log: {path})"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _start_if_free(home: Path) -> "subprocess.Popen[bytes] | None":
    """None if a server is there that starts, or ends, just now."""
    make_home(home)
    try:
        with take_lock(home) as lock:
            return _start(home, lock.fileno())
    except Held:
        return None
    except OSError as error:
        raise Unreachable(
            f"the server could not be started in {home}: {error.strerror}; check its disk"
        ) from None


def _start(home: Path, lock: int) -> "subprocess.Popen[bytes]":
    import subprocess

    python, folder = _python()
    arguments = ["-m", "midflight.server", "--home", str(home), "--lock", str(lock)]
    handle = os.open(home / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [*python, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(handle)


def _python() -> tuple[list[str], str]:
    """This interpreter, and where to start it: beside the sources if they are found only there."""
    sources = str(Path(midflight.__file__).resolve().parent.parent)
    if os.getcwd() == sources:
        return [sys.executable], sources
    return [sys.executable, "-P"], "/"
