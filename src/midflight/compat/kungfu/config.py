"""ConfigStoreClient: reads and writes the cluster in a config store, over HTTP.

Each call is one request with a time limit. `put` can be made conditional on what was read before;
then `Outdated` says that somebody else was faster. Nothing here is tried again by itself.
"""

import hashlib
import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from midflight.compat.kungfu.cluster import Cluster, loads
from midflight.errors import Refused, TimedOut, Unreachable, UsageError
from midflight.rundir import read_token

CONFIG_SERVER = "KUNGFU_CONFIG_SERVER"  # the variable that names the store to training processes
TOKEN_FILE = "KUNGFU_CONFIG_TOKEN_FILE"
_LARGEST_ANSWER = 4 << 20
_PAUSE = 0.05


class Outdated(Refused):
    """The store holds another version than the one that was to be replaced."""


class Followed(Refused):
    """Another launcher follows the store."""


@dataclass(frozen=True)
class Stored:
    cluster: Cluster
    version: int
    etag: str


class ConfigStoreClient:
    def __init__(
        self, url: str, token_file: str | None = None, timeout: float = 1.0, runner: str = ""
    ) -> None:
        """`url` as in http://127.0.0.1:9100/config. `runner`: the launcher that follows it."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise UsageError(
                f"a config server is named as in http://127.0.0.1:9100/config, got {url!r:.200}"
            )
        self.url = url
        self._kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._host, self._port = parts.hostname, port
        self._path = parts.path or "/config"
        self._timeout = timeout
        self._runner = runner
        self._token = read_token(Path(token_file)) if token_file else None

    def get(self) -> Stored | None:
        """What is there now; None if nothing is."""
        status, headers, body = self._ask("GET", self._path)
        if status == 404:
            return None
        _expect(status, body)
        tag = headers.get("ETag") or f'"{hashlib.sha256(body).hexdigest()}"'  # KungFu's has none
        return Stored(loads(body), int(headers.get("X-Config-Version", 0)), tag)

    def put(self, cluster: Cluster, if_match: str | None = None, *, absent: bool = False) -> str:
        """Replace the cluster; the ETag of what is there now.

        `if_match`: only what has this ETag is replaced. `absent`: only if nothing is there.
        """
        headers = {"Content-Type": "application/json"}
        if if_match is not None:
            headers["If-Match"] = if_match
        if absent:
            headers["If-None-Match"] = "*"
        status, answered, body = self._ask("PUT", self._path, cluster.dumps().encode(), headers)
        _expect(status, body)
        return answered.get("ETag", "")

    update = put  # KungFu's word for it

    def reset(self) -> None:
        """Forget the cluster; the next PUT is taken as the first."""
        status, _, body = self._ask("POST", self._path)
        _expect(status, body)

    def delete(self, if_match: str | None = None) -> None:
        headers = {} if if_match is None else {"If-Match": if_match}
        status, _, body = self._ask("DELETE", self._path, None, headers)
        _expect(status, body)

    def wait_server(self, timeout: float = 60.0) -> None:
        """Until somebody answers."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.get()
            except Unreachable as error:
                if time.monotonic() >= deadline:
                    raise TimedOut(f"waited {timeout:g} s: {error}") from None
                time.sleep(_PAUSE)
            else:
                return

    def stop(self) -> None:
        """End the server."""
        status, _, body = self._ask("GET", "/stop")
        _expect(status, body)

    stop_server = stop

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent = {**(headers or {}), "Connection": "close"}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token.decode('latin-1')}"
        if self._runner:
            sent["X-Runner"] = self._runner
        line = self._kind(self._host, self._port, timeout=self._timeout)
        try:
            line.request(method, path, body, sent)
            answer = line.getresponse()
            return answer.status, dict(answer.headers), answer.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the config server {self.url} does not answer: {reason}") from None
        finally:
            line.close()


def _expect(status: int, body: bytes) -> None:
    if status == 200:
        return
    line = body.decode("utf-8", "replace").strip()[:500] or http.client.responses.get(status, "")
    kind = {409: Followed, 412: Outdated}.get(status, Refused)
    raise kind(f"the config server answered {status}: {line}")
