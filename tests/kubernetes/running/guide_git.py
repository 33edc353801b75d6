"""A git repository behind an address that pods can reach, as the guide's is.

Plain files over HTTP are enough for git; the folder that they are in is hidden from pods.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextmanager
def served(repository: str, folder: Path) -> Iterator[str]:
    """The address of a copy of the repository; the folder is made for it."""
    copy = folder / f"{Path(repository).stem}.git"
    for words in (["clone", "-q", "--bare", repository, str(copy)], ["update-server-info"]):
        where = copy if copy.exists() else folder.parent
        subprocess.run(["git", *words], cwd=where, check=True, timeout=60)
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Quiet(*args, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{copy.name}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


class Repository:
    """One whose branch moves on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "code"
        self.served = folder / "served"
        self.folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    def commit(self) -> str:
        self._git("commit", "--quiet", "--allow-empty", "-m", "next")
        copy = self.served / "code.git"
        if copy.exists():
            self._git("push", "--quiet", str(copy), "main")
            subprocess.run(["git", "update-server-info"], cwd=copy, check=True, timeout=60)
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", *who, "-C", str(self.folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()
