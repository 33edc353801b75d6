"""Small git repositories for tests, on disk and behind a web server that asks for a password."""

import base64
import functools
import http.server
import os
import subprocess
import threading
from pathlib import Path

QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def environment(**more: str) -> dict[str, str]:
    """Without what the person who runs the tests has set up for git."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**clean, **QUIET, **more}


class Repository:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._git("init", "--quiet", "--initial-branch=main", str(path), inside=False)

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def commit(self, text: str, file: str = "train.py") -> str:
        (self.path / file).write_text(text)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "a change")
        return self.head()

    def head(self) -> str:
        return self._git("rev-parse", "HEAD").strip()

    def branch(self, name: str) -> None:
        self._git("checkout", "--quiet", "-B", name)

    def to(self, name: str) -> None:
        self._git("checkout", "--quiet", name)

    def tag(self, name: str) -> None:
        self._git("tag", name)

    def reset(self, commit: str) -> None:
        self._git("reset", "--quiet", "--hard", commit)

    def export(self) -> None:
        """Make it readable for git over plain files on a web server."""
        self._git("update-server-info")

    def _git(self, *words: str, inside: bool = True) -> str:
        where = ["-C", str(self.path)] if inside else []
        done = subprocess.run(
            ["git", *where, *words],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
        )
        return done.stdout


class PasswordServer:
    """Serves a folder on loopback to who knows the user and the password, 401 to all others."""

    def __init__(self, folder: Path, user: str, password: str) -> None:
        self.asked = 0
        allowed = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        server = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.headers.get("Authorization") == allowed:
                    super().do_GET()
                    return
                server.asked += 1
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="code"')
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

            def translate_path(self, path: str) -> str:
                """git asks for REPO.git/info/refs, which is in REPO.git/.git here."""
                return super().translate_path(path.replace(".git/", ".git/.git/", 1))

        handler = functools.partial(Handler, directory=str(folder))
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)
