"""A fake of the server: answers from canned views on a real unix socket, and decides nothing.

Tests put views into its fields and read afterwards what it was asked. `refuse` makes it answer one
request with an error, `answers` with anything else.
"""

import contextlib
import json
import socketserver
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from midflight.protocol.views import EventView, GpuView, JobView, NodeView, OperationView
from tests.cli import canned

STATUSES = {"usage": 400, "not-found": 404, "conflict": 409, "refused": 409, "timeout": 504}


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # without /api/v1
    query: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


@dataclass
class FakeServer:
    home: Path
    jobs: list[JobView] = field(default_factory=list)
    nodes: list[NodeView] = field(default_factory=lambda: [canned.node("node-1")])
    gpus: list[GpuView] = field(default_factory=list)  # of every node
    events: list[EventView] = field(default_factory=list)
    operations: list[OperationView] = field(default_factory=list)  # one after the other
    training: dict[str, Any] | None = None  # of every job
    log: bytes = b""
    waits: bool = False  # questions that wait are not answered before this is False again
    hiccups: int = 0  # so many questions about operations are answered by "unavailable"
    requests: list[Request] = field(default_factory=list)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._server = _Server(str(self.home / "server.sock"), _Handler)
        self._server.fake = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        (self.home / "server.sock").unlink()

    def refuse(self, method: str, path: str, kind: str, text: str) -> None:
        body = json.dumps({"error": text, "kind": kind}).encode()
        self.answers[method, path] = Answer(STATUSES[kind], body)

    def asked(self, method: str, path: str) -> list[Request]:
        return [r for r in self.requests if (r.method, r.path) == (method, path)]

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if found := self.answers.get((request.method, request.path)):
            return found
        parts = request.path.strip("/").split("/")
        if "operations" in parts and self.hiccups:
            self.hiccups -= 1
            return Answer(503, b'{"error": "the server is ending", "kind": "unavailable"}')
        if request.path.endswith("/logs"):
            return Answer(200, self.log)
        try:
            return Answer(200, json.dumps(self._value(request, parts)).encode())
        except LookupError:
            body = {"error": f"nothing at {request.path}", "kind": "not-found"}
            return Answer(404, json.dumps(body).encode())

    def _value(self, request: Request, parts: list[str]) -> object:
        match (request.method, *parts):
            case ("GET", "status"):
                return {"version": "0", "pid": 1, "home": str(self.home)}
            case ("GET", "nodes", *rest):
                return self.gpus if rest else self.nodes
            case ("POST", "nodes", name, _):
                return next(node for node in self.nodes if node["name"] == name)
            case ("GET", "jobs"):
                return self._of(request.query)
            case ("POST", "jobs"):
                return canned.job(request.body["name"], namespace=request.body["namespace"])
            case ("POST", "prune"):
                return [{"name": "old", "namespace": "default", "type": "etjob", "age": 40000.0}]
            case ("GET", "events"):
                return self.events
            case (_, "jobs", namespace, name, *rest):
                return self._about(self._job(namespace, name), rest)
            case _:
                raise LookupError

    def _of(self, query: dict[str, str]) -> list[JobView]:
        namespace = query["namespace"]
        return [job for job in self.jobs if namespace in ("*", job["namespace"])]

    def _job(self, namespace: str, name: str) -> JobView:
        for job in self.jobs:
            if (job["namespace"], job["name"]) == (namespace, name):
                return job
        raise LookupError

    def _next_operation(self) -> OperationView:
        """Waits until the test has put one there."""
        deadline = time.monotonic() + 30
        while not self.operations and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.operations.pop(0)

    def _about(self, job: JobView, rest: list[str]) -> object:
        match rest:
            case ["events"]:
                return self.events
            case ["scale"] | ["operations", _]:
                return self._next_operation()
            case ["training"]:
                return self.training
            case ["chaos"]:
                return None
            case ["wait"]:
                while self.waits:
                    time.sleep(0.01)
                return job
            case _:
                return job


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    fake: FakeServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        target = urlsplit(self.path)
        path = unquote(target.path.removeprefix("/api/v1"))
        request = Request(self.command, path, dict(parse_qsl(target.query)), body)
        answer = cast(_Server, self.server).fake.answer(request)
        with contextlib.suppress(BrokenPipeError):  # it was not waited for
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""
