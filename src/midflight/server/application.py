"""The HTTP API as a table: what is at which path, what it takes and what it answers.

Routes, the OpenAPI document and its test are all made of this table; to add a route, write its
function and give it a line here.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from midflight.backends.local.interface import LogQuery
from midflight.controller.spec import Spec
from midflight.protocol.messages import Status
from midflight.protocol.views import (
    EventView,
    GpuView,
    JobSummary,
    JobView,
    NodeView,
    OperationView,
    PrunedView,
    ServerView,
)
from midflight.server import bodies, job_routes, polling_routes, server_routes
from midflight.server.api import Api, guarded, http_error
from midflight.server.audit import audited
from midflight.server.metrics import Requests
from midflight.server.metrics_routes import get_metrics

PREFIX = "/api/v1"
METRICS = "/metrics"  # where Prometheus looks for it; text, so the OpenAPI document leaves it out
JOB = "/jobs/{namespace}/{name}"


@dataclass(frozen=True)
class Entry:
    method: str
    path: str
    summary: str
    work: Callable[[Api, Request], Awaitable[Response]]
    answer: Any  # a type, None for nothing, bytes for text
    body: Any = None
    query: Any = None
    status: int = 200


ENTRIES = (
    Entry("GET", "/status", "the server", server_routes.get_status, ServerView),
    Entry(
        "POST", "/stop", "ends the server; jobs keep running", server_routes.stop, None, status=202
    ),
    Entry("GET", "/nodes", "all nodes", server_routes.get_nodes, list[NodeView]),
    Entry(
        "GET",
        "/nodes/{name}/gpus",
        "how busy the devices of a node are",
        server_routes.get_gpus,
        list[GpuView],
    ),
    Entry(
        "POST",
        "/nodes",
        "makes simulated nodes; with count 0, this machine again",
        server_routes.set_nodes,
        list[NodeView],
        body=bodies.NodesBody,
    ),
    Entry(
        "POST",
        "/nodes/{name}/{action}",
        "cordon, drain, lose or return a node",
        server_routes.act_on_node,
        NodeView,
    ),
    Entry("POST", "/jobs", "submits a job", job_routes.submit, JobView, body=Spec, status=201),
    Entry(
        "GET",
        "/jobs",
        "the jobs of a namespace, * for all",
        job_routes.get_jobs,
        list[JobSummary],
        query=bodies.JobsQuery,
    ),
    Entry("GET", JOB, "one job", job_routes.get_job, JobView),
    Entry("DELETE", JOB, "ends and removes a job", job_routes.delete_job, None, status=202),
    Entry(
        "GET",
        f"{JOB}/wait",
        "one job, when it is running, finished or gone (then null)",
        polling_routes.wait_for_job,
        JobView | None,
        query=bodies.WaitQuery,
    ),
    Entry(
        "POST",
        f"{JOB}/scale",
        "changes the number of workers",
        job_routes.scale,
        OperationView,
        body=bodies.ScaleBody,
        status=201,
    ),
    Entry(
        "GET",
        f"{JOB}/operations/{{id}}",
        "a scale operation, as soon as it has changed more than `after` times",
        polling_routes.get_operation,
        OperationView,
        query=bodies.OperationQuery,
    ),
    Entry("GET", f"{JOB}/events", "what happened to a job", job_routes.get_events, list[EventView]),
    Entry(
        "GET",
        "/events",
        "what happened to the jobs of a namespace, * for all",
        job_routes.get_all_events,
        list[EventView],
        query=bodies.EventsQuery,
    ),
    Entry("GET", f"{JOB}/logs", "text, streamed", polling_routes.get_logs, bytes, query=LogQuery),
    Entry(
        "GET",
        f"{JOB}/training",
        "what the coordinator of the run says now",
        job_routes.get_training,
        Status | None,
    ),
    Entry(
        "POST",
        f"{JOB}/chaos",
        "rehearses a failure",
        job_routes.chaos,
        None,
        body=bodies.ChaosBody,
        status=202,
    ),
    Entry(
        "POST",
        "/prune",
        "deletes jobs that ended some time ago",
        job_routes.prune,
        list[PrunedView],
        body=bodies.PruneBody,
    ),
)


def application(api: Api) -> Starlette:
    routes = [Route(f"{PREFIX}/openapi.json", _describe, methods=["GET"])]
    routes += [_route(api, entry) for entry in ENTRIES]
    routes.append(Route(METRICS, guarded(partial(get_metrics, api)), methods=["GET"]))
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: http_error},
        middleware=[Middleware(Counted, requests=api.requests)],
    )


class Counted:
    """Counts each request once its status is known."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.count(scope["method"], message["status"])
            await send(message)

        await self._app(scope, receive, observed)


def _route(api: Api, entry: Entry) -> Route:
    async def work(request: Request) -> Response:
        return await entry.work(api, request)

    return Route(PREFIX + entry.path, audited(guarded(work)), methods=[entry.method])


async def _describe(request: Request) -> Response:
    from midflight.server.openapi import document  # most servers are never asked

    return JSONResponse(document(ENTRIES, PREFIX))
