"""Scale objects whose job does not exist: each waits for one until its timeout, then it is refused.

So nobody waits for a mistyped name. The namespaces are looked after side by side, so that many such
objects in one delay nobody in another; each object is looked at when it changes and when it is due,
and never because of another one.
"""

import asyncio
import contextlib
import heapq
import logging
from typing import NamedTuple

from midflight.controller.commands import Record
from midflight.errors import MidflightError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.operator import scale_objects, scale_requests
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.informer import Key
from midflight.kubernetes.resources import status

AGAIN = 1.0  # seconds until a refusal that could not be written is tried again
LONGEST = 60.0  # a timeout that was changed is noticed by then

log = logging.getLogger("midflight.operator")


class Scaler(NamedTuple):
    kind: str
    job: Key
    name: str


class UnclaimedScalers:
    def __init__(self, cache: Cache) -> None:
        self.looks = 0  # at single objects
        self._cache = cache
        self._begun = False
        self._namespaces: dict[str, _Waiting] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()  # namespaces that have some
        cache.on_scaler = self.note
        cache.on_job_gone = self._note_all

    def begin(self) -> None:
        """Every job and every scale object has been seen."""
        self._begun = True
        for index in self._cache.scalers.values():
            for key in index.jobs():
                self._note_all(key)

    def note(self, scaler: Object) -> None:
        """It is new, or changed."""
        job = scaler["metadata"]["namespace"], scale_requests.job_of(scaler)
        if self._begun and not self._has_job(job) and not status.is_over(scaler):
            found = Scaler(scaler["kind"], job, scaler["metadata"]["name"])
            self._wait(found, scale_requests.gives_up_at(scaler))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self._new.get()))

    def _note_all(self, job: Key) -> None:
        for scaler in self._cache.scalers_of(job):
            self.note(scaler)

    def _has_job(self, job: Key) -> bool:
        return names.TRAININGJOB in self._cache.kinds_of(job)

    def _wait(self, scaler: Scaler, until: float) -> None:
        namespace, _ = scaler.job
        if namespace not in self._namespaces:
            self._namespaces[namespace] = _Waiting()
            self._new.put_nowait(namespace)
        latest = self._cache.clock() + LONGEST
        self._namespaces[namespace].put(scaler, min(until, latest))

    async def _serve(self, namespace: str) -> None:
        """Until it has none."""
        waiting = self._namespaces[namespace]
        while (due := waiting.next()) is not None:
            if (left := due - self._cache.clock()) > 0:
                await waiting.changed(left)
                continue
            scaler = waiting.take()
            try:
                await self._look_at(scaler)
            except MidflightError as error:
                log.warning("%s/%s: %s", namespace, scaler.name, error)
                self._wait(scaler, self._cache.clock() + AGAIN)
            except Exception:  # whatever is wrong with this one, the others must go on
                log.exception("a bug: %s/%s is left as it is", namespace, scaler.name)
            await asyncio.sleep(0)
        del self._namespaces[namespace]

    async def _look_at(self, scaler: Scaler) -> None:
        self.looks += 1
        found = self._cache.scalers[scaler.kind].of(scaler.job).get(scaler.name)
        if found is None or self._has_job(scaler.job) or status.is_over(found):
            return
        now = self._cache.clock()
        if (due := scale_requests.gives_up_at(found)) > now:
            self._wait(scaler, due)
        elif not await self._refuse(found, scaler.job, now):
            self._wait(scaler, now + AGAIN)

    async def _refuse(self, scaler: Object, key: Key, now: float) -> bool:
        namespace, job = key
        wrong = f"there is no TrainingJob {job} in {namespace}"
        record = Record(f"{namespace}/{job}", f"job/{job}", "Warning", "ScaleRefused", wrong)
        self._cache.recorder.note(scaler, record)
        shown = status.refused_status(wrong, scaler.get("status") or {}, now)
        return await scale_objects.write(self._cache, {**scaler, "status": shown}, None)


class _Waiting:
    """Those of one namespace, by the time at which to look at them."""

    def __init__(self) -> None:
        self._times: dict[Scaler, float] = {}
        self._heap: list[tuple[float, Scaler]] = []
        self._awake = asyncio.Event()

    def put(self, scaler: Scaler, at: float) -> None:
        """An earlier time that is known of it stands."""
        if at < self._times.get(scaler, float("inf")):
            self._times[scaler] = at
            heapq.heappush(self._heap, (at, scaler))
            self._awake.set()

    def next(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def take(self) -> Scaler:
        _, scaler = heapq.heappop(self._heap)
        self._times.pop(scaler, None)
        return scaler

    async def changed(self, within: float) -> None:
        """Until another is put, or so many seconds have passed."""
        self._awake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._awake.wait()
