"""What the routes share: the loop, the state as the API shows it, bodies and errors.

The routes themselves are in `server_routes.py`, `job_routes.py` and `polling_routes.py`; each is
one small function. `application.py` puts them together. `docs/api.md` lists the kinds of errors.
Whatever is not one of Midflight's own errors is a bug: the caller learns only that, and the log has
the rest.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from midflight.backends.local.interface import Machine
from midflight.backends.local.journal import Journal
from midflight.backends.loop import Loop
from midflight.backends.place import Noted
from midflight.controller import views
from midflight.controller.state import Cluster, Job, Node, Operation
from midflight.errors import (
    Exists,
    MidflightError,
    NotFound,
    ProtocolError,
    Refused,
    StoreError,
    TimedOut,
    Unreachable,
    UsageError,
)
from midflight.protocol import codec
from midflight.protocol.views import ErrorView, EventView, JobSummary, JobView, NodeView
from midflight.server.bodies import nearest
from midflight.server.metrics import Requests
from midflight.server.training_logs import TrainingLogs
from midflight.server.waiters import Waiters

LARGEST_BODY = 1 << 20  # bytes

log = logging.getLogger("midflight.server")

# The first that fits, so the narrow ones come first.
KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (UsageError, 400, "usage"),
    (ProtocolError, 400, "usage"),
    (Exists, 409, "conflict"),
    (NotFound, 404, "not-found"),
    (Refused, 409, "refused"),
    (TimedOut, 504, "timeout"),
    (Unreachable, 503, "unavailable"),
    (StoreError, 503, "unavailable"),
)


@dataclass
class Api:
    loop: Loop
    machine: Machine
    journal: Journal
    waiters: Waiters
    home: Path
    started_at: float
    requests: Requests = field(default_factory=Requests)
    trainings: TrainingLogs = field(default_factory=TrainingLogs)
    stop: Callable[[], None] = lambda: None  # ends the server
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cluster(self) -> Cluster:
        return self.loop.cluster

    # --- finding ----------------------------------------------------------------------------

    def job(self, request: Request) -> Job:
        return find_job(self.cluster, key_of(request))

    def node(self, name: str) -> Node:
        return find_node(self.cluster, name)

    # --- showing ----------------------------------------------------------------------------

    def summary(self, job: Job) -> JobSummary:
        return views.summary(self.cluster, job, self.loop.clock(), self.machine.folder(job))

    def view(self, job: Job) -> JobView:
        return views.view(self.cluster, job, self.loop.clock(), self.machine.folder(job))

    def node_view(self, node: Node) -> NodeView:
        return views.node_view(self.cluster, node)

    def event_view(self, noted: Noted) -> EventView:
        return views.event_view(noted.record, noted.at)


def key_of(request: Request) -> str:
    return f"{request.path_params['namespace']}/{request.path_params['name']}"


def find_job(cluster: Cluster, key: str) -> Job:
    if (job := cluster.jobs.get(key)) is None:
        namespace, _, name = key.partition("/")
        others = [o.spec.name for o in cluster.jobs.values() if o.spec.namespace == namespace]
        raise NotFound(
            f"no job is named {name} in namespace {namespace}{nearest(name, others)};"
            " `midflight list` shows those there are"
        )
    return job


def find_node(cluster: Cluster, name: str) -> Node:
    if (node := cluster.nodes.get(name)) is None:
        known = ", ".join(cluster.nodes) or "none"
        raise NotFound(f"no node is named {name}; there are: {known}")
    return node


def find_operation(job: Job, identity: str) -> Operation:
    for operation in job.operations:
        if operation.id == identity:
            return operation
    raise NotFound(
        f"{job.spec.name} has no scale operation {identity}; `midflight get` shows those it has"
    )


# --- bodies and errors ----------------------------------------------------------------------------


class CallerGone(Exception):
    """Nobody reads the answer any more."""


async def read_json(request: Request) -> object:
    """The body, `{}` if there is none."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST_BODY:
            raise UsageError(f"wanted a body of at most {LARGEST_BODY} bytes, got more")
    value = codec.loads(bytes(data)) if data else {}
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can name half of a character, and no answer can repeat it
        raise UsageError("wanted text in a body, got half of a character") from None
    return value


def error_answer(error: Exception) -> Response:
    for kind, status, name in KINDS:
        if isinstance(error, kind):
            return _error(status, name, str(error))
    if isinstance(error, MidflightError):
        return _error(500, "internal", str(error))
    return _error(500, "internal", "an internal error of the server; see server.log")


def http_error(request: Request, error: Exception) -> Response:
    """What starlette refuses by itself: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        text = f"nothing is at {request.scope['path']}; see /api/v1/openapi.json"
        return _error(404, "not-found", text)
    text = f"{request.method} {request.scope['path']}: {error.detail}"
    return _error(error.status_code, "usage", text)


def guarded(
    work: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await work(request)
        except (CallerGone, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        except MidflightError as error:
            return error_answer(error)
        except Exception as error:  # a bug; the server goes on
            log.exception("a bug: %s %s failed", request.method, request.scope["path"])
            return error_answer(error)

    return answer


def _error(status: int, kind: str, text: str) -> Response:
    body: ErrorView = {"error": text, "kind": kind}
    return JSONResponse(body, status)
