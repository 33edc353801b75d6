"""Routes about jobs that answer at once."""

import asyncio
import uuid

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from midflight.backends import training
from midflight.controller import views
from midflight.controller.events import Event, JobDeleted, JobSubmitted, ScaleAsked
from midflight.controller.scale_rules import objection, operation_id, resolve
from midflight.controller.spec import DEFAULT_NAMESPACE, Kind, Spec
from midflight.controller.spec_check import check, refusal
from midflight.controller.state import Cluster, Job
from midflight.deadlines import LONGEST_RESIZE
from midflight.errors import NotFound, Refused, UsageError
from midflight.protocol import codec
from midflight.protocol.views import PrunedView
from midflight.server.api import Api, find_job, find_operation, key_of, read_json
from midflight.server.bodies import (
    ChaosBody,
    EventsQuery,
    JobsQuery,
    PruneBody,
    ScaleBody,
    nearest,
    read,
    read_query,
)

CHAOS = ("kill", "stop", "cont", "cut")


async def submit(api: Api, request: Request) -> Response:
    spec = read(Spec, await read_json(request), "job")
    request.state.job = spec.key
    check(spec)
    uid = str(uuid.uuid4())

    def decide(cluster: Cluster, now: float) -> Event:
        refusal(cluster, spec)
        return JobSubmitted(now, spec, uid)

    cluster = await api.loop.ask(decide)
    return JSONResponse(api.view(cluster.jobs[spec.key]), 201)


async def get_jobs(api: Api, request: Request) -> Response:
    query = read_query(JobsQuery, request.query_params, "jobs")
    kinds = [kind.value for kind in Kind]
    if query.type and query.type not in kinds:
        raise UsageError(
            f"wanted a type of job, one of {', '.join(kinds)}, got {query.type}"
            f"{nearest(query.type, kinds)}"
        )
    found = [
        api.summary(job)
        for job in api.cluster.jobs.values()
        if _is_in(job.spec.namespace, query.namespace)
        and (not query.type or job.spec.kind.value == query.type)
    ]
    return JSONResponse(found)


async def get_job(api: Api, request: Request) -> Response:
    return JSONResponse(api.view(api.job(request)))


async def delete_job(api: Api, request: Request) -> Response:
    key = key_of(request)

    def decide(cluster: Cluster, now: float) -> Event:
        return JobDeleted(now, find_job(cluster, key).key)

    await api.loop.ask(decide)
    return JSONResponse(None, 202)


async def scale(api: Api, request: Request) -> Response:
    key = key_of(request)
    body = read(ScaleBody, await read_json(request), "scale")
    asked = ""

    def decide(cluster: Cluster, now: float) -> Event:
        nonlocal asked
        event = _scaling(find_job(cluster, key), body, now)
        asked = event.operation
        return event

    cluster = await api.loop.ask(decide)
    job = find_job(cluster, key)
    return JSONResponse(views.operation_view(find_operation(job, asked)), 201)


async def get_events(api: Api, request: Request) -> Response:
    noted = api.journal.events(api.job(request).key)
    return JSONResponse([api.event_view(event) for event in noted])


async def get_all_events(api: Api, request: Request) -> Response:
    query = read_query(EventsQuery, request.query_params, "events")
    found = [api.event_view(noted) for noted in api.journal.all_events()]
    return JSONResponse([e for e in found if _is_in(e["namespace"], query.namespace)])


async def get_training(api: Api, request: Request) -> Response:
    status = await training.status(api.machine.dial(api.job(request)))
    return JSONResponse(codec.as_view(status))


async def chaos(api: Api, request: Request) -> Response:
    job = api.job(request)
    body = read(ChaosBody, await read_json(request), "chaos")
    if body.what not in CHAOS:
        raise UsageError(
            f"wanted one of {', '.join(CHAOS)}, got {body.what}{nearest(body.what, CHAOS)}"
        )
    if body.instance not in job.instances:
        raise NotFound(
            f"{job.spec.name} has no instance {body.instance}"
            f"{nearest(body.instance, job.instances)}"
        )
    api.machine.chaos(job, body.what, body.instance)
    return JSONResponse(None, 202)


async def prune(api: Api, request: Request) -> Response:
    body = read(PruneBody, await read_json(request), "prune")
    namespace = body.namespace or DEFAULT_NAMESPACE
    found = views.prunable(api.cluster, namespace, body.since, api.loop.clock())
    deleted = await asyncio.gather(*(_delete_if_finished(api, pruned) for pruned in found))
    return JSONResponse([pruned for pruned, gone in zip(found, deleted, strict=True) if gone])


async def _delete_if_finished(api: Api, pruned: PrunedView) -> bool:
    key = f"{pruned['namespace']}/{pruned['name']}"

    def decide(cluster: Cluster, now: float) -> Event:
        if not find_job(cluster, key).finished:
            raise NotFound(f"another job is named {key} now")
        return JobDeleted(now, key)

    try:
        await api.loop.ask(decide)
    except NotFound:
        return False  # somebody else was faster
    return True


def _scaling(job: Job, body: ScaleBody, now: float) -> ScaleAsked:
    if not 0 < body.timeout <= LONGEST_RESIZE:
        raise UsageError(f"wanted a timeout of 1 to {LONGEST_RESIZE} seconds, got {body.timeout:g}")
    if wrong := objection(job, body.kind, body.count, body.names, body.to):
        raise Refused(wrong)
    kind, count = resolve(job, body.kind, body.count, body.names, body.to)
    identity = operation_id(job, now)
    return ScaleAsked(now, job.key, identity, kind, count, body.timeout, body.names, body.partial)


def _is_in(namespace: str, wanted: str) -> bool:
    return wanted == views.EVERYWHERE or namespace == (wanted or DEFAULT_NAMESPACE)
