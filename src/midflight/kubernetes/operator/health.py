"""Health and metrics over HTTP: whether the operator lives, is of use, and what it does."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from midflight.errors import UsageError


@dataclass(frozen=True)
class Figures:
    """What the metrics say; a dictionary has one value for each label."""

    leading: bool
    jobs: dict[str, int]  # by phase
    pods: int
    reconciles: int
    failures: int
    requests: int


def metrics(figures: Figures) -> str:
    """In the text format that Prometheus reads."""
    lines = [
        *_metric("midflight_leading", "gauge", "1 if this operator leads", int(figures.leading)),
        "# HELP midflight_jobs Jobs by phase.",
        "# TYPE midflight_jobs gauge",
        *(f'midflight_jobs{{phase="{phase}"}} {n}' for phase, n in sorted(figures.jobs.items())),
        *_metric("midflight_pods", "gauge", "Pods of all jobs", figures.pods),
        *_metric("midflight_reconciles_total", "counter", "Passes over a job", figures.reconciles),
        *_metric("midflight_failures_total", "counter", "Passes that failed", figures.failures),
        *_metric("midflight_requests_total", "counter", "Requests sent", figures.requests),
    ]
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, value: int) -> list[str]:
    return [f"# HELP {name} {text}.", f"# TYPE {name} {kind}", f"{name} {value}"]


def bind(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        host, port = address
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None


async def serve(
    listen: socket.socket, figures: Callable[[], Figures], ready: Callable[[], bool]
) -> None:
    """Until cancelled. A standby is ready as well: it is there to take over."""

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        known = ready()
        return PlainTextResponse("ok\n" if known else "not yet\n", 200 if known else 503)

    async def show(_: Request) -> Response:
        return PlainTextResponse(metrics(figures()), media_type="text/plain; version=0.0.4")

    routes = [
        Route("/healthz", health),
        Route("/readyz", readiness),
        Route("/metrics", show),
    ]
    app = Starlette(routes=routes)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    try:
        await server.serve(sockets=[listen])
    except asyncio.CancelledError:
        server.should_exit = True
        raise
