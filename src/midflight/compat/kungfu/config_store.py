"""The config store: a cluster, held in memory and handed out over HTTP.

The paths and methods are KungFu's: GET, PUT, POST (reset) and DELETE on the endpoint, and /stop.
Beyond that every change has a version, told as ETag, so that a writer can say which one it has
seen (If-Match); what is invalid is refused with 4xx and one line; and a token can be asked for,
before anything but the headers is read. Callers who have not shown it are bounded.
One launcher follows a store: it says so with each request (X-Runner), and another one is refused.
It listens on loopback unless told otherwise.
"""

import contextlib
import hmac
import secrets
import socket
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from midflight.compat.kungfu.cluster import Cluster, loads
from midflight.coordinator.admission import Stranger, Strangers
from midflight.errors import UsageError
from midflight.run.addresses import join_address

LARGEST_BODY = 1 << 20
MOST_STRANGERS = 64  # connections whose caller has not shown the token; each has a thread
_UNWANTED = 1 << 16  # bytes of a body that nobody wants, so that its sender reads why
FOLLOWED_SECONDS = 3.0  # after the last request of the launcher that follows, another one may
_IDLE_SECONDS = 10.0  # for a caller that says nothing
_POLL_SECONDS = 0.05  # in which a stop is noticed
_BURST = 128  # callers that may wait to be accepted


class Rejected(Exception):
    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True)
class Held:
    """What the store holds: None before the first PUT, and after a reset."""

    cluster: Cluster | None
    version: int
    tag: str


class ConfigStore:
    """The cluster and its version. Every change is one compare-and-set."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._lock = threading.Lock()
        self._boot = secrets.token_hex(4)  # tags of a store before this one never match
        self._held = self._made(cluster, 0 if cluster is None else 1)
        self._runner = ""
        self._heard_at = 0.0

    def follow(self, runner: str, now: float) -> None:
        """This launcher starts the workers that are named here, and nobody else does."""
        with self._lock:
            taken = self._runner not in ("", runner)
            if taken and now - self._heard_at < FOLLOWED_SECONDS:
                raise Rejected(HTTPStatus.CONFLICT, "another kungfu-run follows this config")
            self._runner, self._heard_at = runner, now

    def _made(self, cluster: Cluster | None, version: int) -> Held:
        return Held(cluster, version, f'"{self._boot}-{version}"')

    def get(self) -> Held:
        return self._held

    def put(self, cluster: Cluster | None, match: str | None, none_match: str | None) -> Held:
        """Replace what is there, if it is what the caller has seen."""
        with self._lock:
            held = self._held
            _check_conditions(held, match, none_match)
            if cluster is not None and held.cluster is not None and not held.cluster.workers:
                raise Rejected(HTTPStatus.FORBIDDEN, "config was cleared; reset it first (POST)")
            if cluster != held.cluster:
                self._held = self._made(cluster, held.version + 1)
            return self._held


def _check_conditions(held: Held, match: str | None, none_match: str | None) -> None:
    there = held.cluster is not None
    if match is not None and not (there and _names(match, held.tag)):
        found = f"version {held.version} is there" if there else "nothing is there"
        raise Rejected(
            HTTPStatus.PRECONDITION_FAILED,
            f"If-Match wanted {match:.80}, but {found}; get it and decide anew",
        )
    if none_match is not None and there and _names(none_match, held.tag):
        raise Rejected(
            HTTPStatus.PRECONDITION_FAILED,
            f"If-None-Match was {none_match:.80}, but version {held.version} is there",
        )


def _names(header: str, tag: str) -> bool:
    return header.strip() == "*" or tag in [part.strip() for part in header.split(",")]


class ConfigServer(ThreadingHTTPServer):
    """The store, its door and its endpoint. `stop` ends it from any thread."""

    daemon_threads = True
    request_queue_size = _BURST

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        endpoint: str = "/config",
        store: ConfigStore | None = None,
        token: bytes | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.store = store or ConfigStore()
        self.endpoint = endpoint
        self.token = token
        self._door = threading.Lock()
        self._strangers = Strangers(MOST_STRANGERS)
        self._callers: dict[Any, Stranger] = {}  # by connection
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot listen on {join_address(host, port)}: {reason}") from None
        self.url = f"http://{join_address(host, self.server_address[1])}{endpoint}"

    def start(self) -> None:
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve, name="config-server", daemon=True).start()

    def serve(self) -> None:
        """Until it is stopped."""
        self.serve_forever(poll_interval=_POLL_SECONDS)

    def stop(self) -> None:
        """Answers that are on their way are still given. Returns at once."""
        threading.Thread(target=self.shutdown, daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._door:
            now, drop = time.monotonic(), partial(_hang_up, request)
            stranger = self._strangers.admit(client_address[0], now, drop)
            if stranger is not None:
                self._callers[request] = stranger
        if stranger is None:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def know(self, request: Any) -> None:
        """Its caller has shown the token, or is gone."""
        with self._door:
            if (stranger := self._callers.pop(request, None)) is not None:
                self._strangers.leave(stranger)

    def shutdown_request(self, request: Any) -> None:
        self.know(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hangs up is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _hang_up(connection: socket.socket) -> None:
    """Whoever reads from it stops at once."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: ConfigServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "midflight-config-server", ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_PUT(self) -> None:
        self._answered(self._put)

    def do_POST(self) -> None:
        self._answered(self._clear)

    def do_DELETE(self) -> None:
        self._answered(self._clear)

    def do_HEAD(self) -> None:
        self._answered(self._not_allowed)

    do_PATCH = do_OPTIONS = do_HEAD

    def _answered(self, action: Any) -> None:
        """Every request ends with one answer; errors are one line."""
        try:
            self._check_token()
            body = self._body()
            if runner := self.headers.get("X-Runner"):
                self.server.store.follow(runner, time.monotonic())
            path = self.path.partition("?")[0]
            if path == "/stop":
                self._answer(HTTPStatus.OK)
                self.server.stop()
            elif path != self.server.endpoint:
                where = self.server.endpoint
                raise Rejected(HTTPStatus.NOT_FOUND, f"there are {where} and /stop here")
            else:
                action(body)
        except Rejected as rejected:
            self._answer(rejected.status, f"{rejected}\n".encode())

    def _get(self, body: bytes) -> None:
        held = self.server.store.get()
        if held.cluster is None:
            raise Rejected(HTTPStatus.NOT_FOUND, "No Config Found.")
        if _names(self.headers.get("If-None-Match", ""), held.tag):
            self._answer(HTTPStatus.NOT_MODIFIED, held=held)
        else:
            self._answer(HTTPStatus.OK, held.cluster.dumps().encode(), held)

    def _put(self, body: bytes) -> None:
        try:
            cluster = loads(body.decode())
        except UnicodeDecodeError:
            raise Rejected(HTTPStatus.BAD_REQUEST, "wanted JSON in UTF-8") from None
        except UsageError as error:
            raise Rejected(HTTPStatus.BAD_REQUEST, str(error)) from None
        self._answer(HTTPStatus.OK, held=self._change(cluster))

    def _clear(self, body: bytes) -> None:
        self._answer(HTTPStatus.OK, held=self._change(None))

    def _change(self, cluster: Cluster | None) -> Held:
        headers = self.headers
        return self.server.store.put(cluster, headers.get("If-Match"), headers.get("If-None-Match"))

    def _not_allowed(self, body: bytes) -> None:
        raise Rejected(HTTPStatus.METHOD_NOT_ALLOWED, "GET, PUT, POST and DELETE are known here")

    def _body(self) -> bytes:
        """What the caller sends; read in any case, so that the line stays usable."""
        try:
            return self.rfile.read(self._length())
        except Rejected:
            self.close_connection = True
            raise

    def _length(self) -> int:
        length = self.headers.get("Content-Length")
        if length is None:
            if self.command == "PUT" or self.headers.get("Transfer-Encoding"):
                raise Rejected(HTTPStatus.LENGTH_REQUIRED, "say how long it is (Content-Length)")
            return 0
        if not (length.isascii() and length.isdecimal()):
            raise Rejected(HTTPStatus.BAD_REQUEST, f"Content-Length is no number: {length!r:.40}")
        if len(length) > 18 or int(length) > LARGEST_BODY:
            raise Rejected(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{length:.40} bytes are too many, at most {LARGEST_BODY} are read",
            )
        return int(length)

    def _check_token(self) -> None:
        token = self.server.token
        if token is None:
            return
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token)
        if scheme.lower() == "bearer" and known:
            self.server.know(self.connection)
        else:
            self._unwanted()
            raise Rejected(HTTPStatus.UNAUTHORIZED, "wanted Authorization: Bearer TOKEN")

    def _unwanted(self) -> None:
        """Passes over a short body, since the answer is lost if something is left unread."""
        self.close_connection = True
        with contextlib.suppress(Rejected):
            self.rfile.read(min(self._length(), _UNWANTED))

    def _answer(self, status: HTTPStatus, body: bytes = b"", held: Held | None = None) -> None:
        self.send_response(status)
        if held is not None:
            self.send_header("ETag", held.tag)
            self.send_header("X-Config-Version", str(held.version))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, PUT, POST, DELETE")
        if status is not HTTPStatus.NOT_MODIFIED:
            kind = "application/json" if status is HTTPStatus.OK else "text/plain"
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: requests are many, and a line each helps nobody."""
