"""`/metrics`: gathers what `metrics.py` renders, for the socket and for the port."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

import midflight
from midflight.backends.local.folder import JobFolder
from midflight.controller.state import Job
from midflight.monitoring.page_server import Answer
from midflight.monitoring.text_format import MEDIA_TYPE
from midflight.rundir import RunDir
from midflight.server import metrics
from midflight.server.api import Api


async def get_metrics(api: Api, request: Request) -> Response:
    return Response(await gather(api), headers={"content-type": MEDIA_TYPE})


async def metrics_page(api: Api) -> Answer:
    return Answer("200 OK", await gather(api), MEDIA_TYPE)


async def gather(api: Api) -> str:
    cluster = api.cluster
    jobs = metrics.shown(cluster, api.loop.clock())
    trainings = await api.trainings.totals({job.uid: _flight_log(api, job) for job in jobs})
    writes = api.journal.writes
    server = metrics.Server(
        version=midflight.__version__,
        started_at=api.started_at,
        requests=api.requests.counts,
        passes=api.loop.passes,
        failures=api.loop.failures,
        saves=writes.count,
        save_failures=writes.failures,
        save_seconds=writes.seconds,
    )
    return metrics.text(cluster, jobs, trainings, server)


def _flight_log(api: Api, job: Job) -> Path:
    return RunDir(JobFolder(Path(api.machine.folder(job))).run).flight_log
