"""Routes about the server itself, and its nodes."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import midflight
from midflight.backends.local.nodes import simulated
from midflight.controller.events import (
    Event,
    NodeCordoned,
    NodeDrained,
    NodeLost,
    NodeReturned,
    NodesChanged,
)
from midflight.errors import UsageError
from midflight.protocol.views import ServerView, time_text
from midflight.server.api import Api, find_node, read_json
from midflight.server.bodies import NodesBody, nearest, read

ACTIONS: dict[str, Callable[[float, str], Event]] = {
    "cordon": NodeCordoned,
    "drain": NodeDrained,
    "lose": NodeLost,
    "return": NodeReturned,
}


async def get_status(api: Api, request: Request) -> Response:
    phases = Counter(job.phase.value for job in api.cluster.jobs.values())
    view: ServerView = {
        "version": midflight.__version__,
        "pid": os.getpid(),
        "startedAt": time_text(api.started_at),
        "home": str(api.home),
        "jobs": dict(phases),
        "nodes": len(api.cluster.nodes),
    }
    return JSONResponse(view)


async def stop(api: Api, request: Request) -> Response:
    async def end() -> None:
        api.stop()

    return JSONResponse(None, 202, background=BackgroundTask(end))


async def get_nodes(api: Api, request: Request) -> Response:
    return JSONResponse([api.node_view(node) for node in api.cluster.nodes.values()])


async def get_gpus(api: Api, request: Request) -> Response:
    node = find_node(api.cluster, request.path_params["name"])
    return JSONResponse(await asyncio.to_thread(api.machine.gpus, node))


async def set_nodes(api: Api, request: Request) -> Response:
    body = read(NodesBody, await read_json(request), "nodes")
    nodes = simulated(body.count, body.gpus) if body.count else api.machine.nodes()
    await api.loop.ask(lambda _, now: NodesChanged(now, nodes))
    return await get_nodes(api, request)


async def act_on_node(api: Api, request: Request) -> Response:
    name, action = request.path_params["name"], request.path_params["action"]
    if action not in ACTIONS:
        raise UsageError(
            f"wanted one of {', '.join(ACTIONS)} for a node, got {action}{nearest(action, ACTIONS)}"
        )

    def decide(cluster: object, now: float) -> Event:
        api.node(name)
        return ACTIONS[action](now, name)

    cluster = await api.loop.ask(decide)
    return JSONResponse(api.node_view(find_node(cluster, name)))
