"""Routes that wait: for a job to come to something, for an operation to change, for more log.

They cost nothing while they wait, and end when the caller goes away or the server ends.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from midflight.backends.local.interface import LogQuery
from midflight.controller.state import Job, Phase
from midflight.controller.views import operation_view
from midflight.errors import NotFound, TimedOut, UsageError
from midflight.server.api import Api, CallerGone, find_operation, key_of
from midflight.server.bodies import OperationQuery, WaitQuery, nearest, read_query
from midflight.server.waiters import Waiters

LONGEST = 7 * 86400.0  # seconds that one question may wait
FIRST_PIECE = 0.5  # seconds in which a log that cannot be read says so, in the answer's status


async def wait_for_job(api: Api, request: Request) -> Response:
    query = read_query(WaitQuery, request.query_params, "wait")
    key = key_of(request)
    if query.until not in UNTIL:
        words = ", ".join(UNTIL)
        raise UsageError(f"wanted until={words}, got {query.until}{nearest(query.until, UNTIL)}")
    former = api.cluster.jobs.get(key)
    if former is None and query.until != "gone":
        api.job(request)

    def reached() -> bool:
        return UNTIL[query.until](former, api.cluster.jobs.get(key))

    if not await until(api.waiters, request, reached, query.timeout):
        raise TimedOut(f"{key} was not {query.until} within {query.timeout:g} s")
    job = api.cluster.jobs.get(key)
    if job is None or former is None or job.uid != former.uid:
        if query.until == "gone":
            return JSONResponse(None)
        raise NotFound(f"{key} was deleted before it was {query.until}")
    return JSONResponse(api.view(job))


def _gone(former: Job | None, now: Job | None) -> bool:
    return former is None or now is None or now.uid != former.uid


def _running(former: Job | None, now: Job | None) -> bool:
    """One that has ended will not run any more, so there is nothing to wait for."""
    return now is None or _gone(former, now) or now.phase is not Phase.PENDING


def _finished(former: Job | None, now: Job | None) -> bool:
    return now is None or _gone(former, now) or now.finished


UNTIL: dict[str, Callable[[Job | None, Job | None], bool]] = {
    "running": _running,
    "finished": _finished,
    "gone": _gone,
}


async def get_operation(api: Api, request: Request) -> Response:
    query = read_query(OperationQuery, request.query_params, "operation")
    identity = request.path_params["id"]
    find_operation(api.job(request), identity)

    def changed() -> bool:
        job = api.cluster.jobs.get(key_of(request))
        return job is None or find_operation(job, identity).changes > query.after

    if query.timeout > 0:
        await until(api.waiters, request, changed, query.timeout)
    return JSONResponse(operation_view(find_operation(api.job(request), identity)))


async def until(
    waiters: Waiters, request: Request, reached: Callable[[], bool], timeout: float
) -> bool:
    """Whether the job of a request came to something in time."""
    if not 0 <= timeout <= LONGEST:
        raise UsageError(f"wanted a timeout of 0 to {LONGEST:g} seconds, got {timeout:g}")
    deadline = asyncio.get_running_loop().time() + timeout
    gone = asyncio.ensure_future(_caller_gone(request))
    try:
        while not reached():
            left = deadline - asyncio.get_running_loop().time()
            with waiters.change(key_of(request)) as change:
                done, _ = await asyncio.wait(
                    (gone, change), timeout=max(left, 0), return_when=asyncio.FIRST_COMPLETED
                )
                if gone in done:
                    raise CallerGone
                if not done:
                    return reached()
                change.result()
        return True
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone


async def _caller_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def get_logs(api: Api, request: Request) -> Response:
    job = api.job(request)
    query = read_query(LogQuery, request.query_params, "logs")
    uid = job.uid

    def over() -> bool:
        now = api.cluster.jobs.get(job.key)
        return now is None or now.uid != uid or now.finished

    log = LogStream(api.machine.logs(job, query, over), api.ending)
    await log.look(FIRST_PIECE)
    return StreamingResponse(
        log.pieces(), media_type="text/plain; charset=utf-8", background=BackgroundTask(log.close)
    )


class LogStream:
    """A log, until it is over or the server ends."""

    def __init__(self, source: AsyncIterator[bytes], ending: asyncio.Event) -> None:
        self._source = source
        self._ending = asyncio.ensure_future(ending.wait())
        self._next = asyncio.ensure_future(_read(source))

    async def look(self, patience: float) -> None:
        """Raises what is wrong with it, if that shows at once."""
        await asyncio.wait((self._next,), timeout=patience)
        if self._next.done() and (error := self._next.exception()) is not None:
            await self.close()
            raise error

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.wait((self._next, self._ending), return_when=asyncio.FIRST_COMPLETED)
            if not self._next.done() or (piece := self._next.result()) is None:
                return
            yield piece
            self._next = asyncio.ensure_future(_read(self._source))

    async def close(self) -> None:
        self._ending.cancel()
        self._next.cancel()
        await asyncio.wait((self._next, self._ending))
        if isinstance(self._source, AsyncGenerator):
            await self._source.aclose()


async def _read(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)
