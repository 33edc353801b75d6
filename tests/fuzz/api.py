"""The HTTP API as a target: an input is a request's line and its body, without a socket.

    POST /api/v1/jobs/default/job/scale?x=1
    {"to": 3}

Each request meets the same job on the same node, because nothing that it asks for is kept.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette

from midflight.backends.loop import Decide
from midflight.controller.events import JobSubmitted, NodesChanged
from midflight.controller.handle import handle
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Job, Node
from midflight.errors import Unreachable
from midflight.server.api import Api
from midflight.server.application import application
from midflight.server.waiters import Waiters

NODE = Node("here", "127.0.0.1", 8, virtual=True)
JOB = Spec(Kind.ETJOB, "job", "python train.py", workers=2, min_workers=1, max_workers=4)
CLUSTER, _ = handle(Cluster(), NodesChanged(1.0, (NODE,)), JobSubmitted(2.0, JOB, "uid"))


class ForgetfulLoop:
    """Decides, and keeps nothing of it."""

    cluster = CLUSTER

    def clock(self) -> float:
        return 3.0

    async def ask(self, decide: Decide) -> Cluster:
        decided, _ = handle(self.cluster, decide(self.cluster, 3.0))
        return decided


class NoMachine:
    def folder(self, job: Job) -> str:
        return "/nowhere"

    def nodes(self) -> tuple[Node, ...]:
        return (NODE,)

    def gpus(self, node: Node) -> list[Any]:
        return []

    def dial(self, job: Job) -> Any:
        async def call() -> None:
            raise Unreachable("nobody is there")

        return call

    def chaos(self, job: Job, what: str, instance: str) -> None:
        pass

    async def logs(self, *_: Any) -> AsyncIterator[bytes]:
        yield b""


@functools.cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


@functools.cache
def _application() -> Starlette:
    journal = SimpleNamespace(events=lambda key: [], all_events=list)
    parts: tuple[Any, ...] = (ForgetfulLoop(), NoMachine(), journal, Waiters(), Path("/"), 1.0)
    return application(Api(*parts))


def status_of(data: bytes) -> int:
    """Of the answer to one request; its line has what h11 lets through."""
    line, _, body = data.partition(b"\n")
    method, _, target = bytes(byte for byte in line if 0x20 <= byte < 0x7F).partition(b" ")
    raw, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method.decode("latin-1") or "GET",
        "scheme": "http",
        "path": "/" + unquote_to_bytes(raw).decode(errors="replace").lstrip("/"),
        "raw_path": raw,
        "query_string": query,
        "headers": [(b"content-type", b"application/json")],
        "server": ("localhost", 80),
    }
    heard = iter([{"type": "http.request", "body": body}])
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(heard, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        said.append(message)

    _runner().run(_application()(scope, receive, send))
    return int(said[0]["status"])
