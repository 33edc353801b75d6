"""Scale objects: writes the outcome of each into its status, and deletes the oldest.

The loop of a job writes those of its job. `UnclaimedScalers` are scale objects whose job does
not exist: each waits for a job until its timeout, then it is refused, so that nobody waits for a
mistyped name.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from midflight.controller.commands import Record
from midflight.controller.state import Job, Phase
from midflight.errors import MidflightError, NotFound
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.decision import Decision
from midflight.kubernetes.operator.informer import Key
from midflight.kubernetes.operator.leader_election import NotLeader
from midflight.kubernetes.resources import status
from midflight.kubernetes.resources.labels import owner_reference

KEPT = 50  # that are over, for each job
AGAIN = 1.0  # seconds until a refusal that could not be written is tried again

log = logging.getLogger("midflight.operator")


async def show(cache: Cache, obj: Object, job: Job, decision: Decision) -> bool:
    """Of one job; whether all that was new could be written."""
    found = cache.scalers_of((job.spec.namespace, job.spec.name))
    well = True
    for scaler in found:
        shown = _status(scaler, job, decision)
        if shown is not None and shown != (scaler.get("status") or {}):
            well = await _write(cache, {**scaler, "status": shown}, obj) and well
    over = sorted((each for each in found if status.is_over(each)), key=scale_requests.order)
    for each in over[: max(len(over) - KEPT, 0)]:
        meta = each["metadata"]
        await cache.api.delete(each["kind"], meta["namespace"], meta["name"])
    return well


def gives_up_at(job: Job, scalers: Iterable[Object]) -> float | None:
    """When one of those that wait for the job to run has waited long enough."""
    if job.phase is not Phase.PENDING:
        return None
    waiting = [scale_requests.gives_up_at(each) for each in scalers if not status.is_over(each)]
    return min(waiting, default=None)


def _status(scaler: Object, job: Job, decision: Decision) -> dict[str, Any] | None:
    """None: nothing new."""
    before = scaler.get("status") or {}
    if status.is_over(scaler):
        return None
    if (reason := decision.refusals.get(scaler["metadata"]["uid"])) is not None:
        return status.refused_status(reason, before, decision.observed.now)
    if (operation := scale_requests.operation_of(job, scaler)) is None:
        return None
    pods = scale_requests.POD_LISTS[scaler["kind"]]
    return status.scaler_status(operation, before, decision.observed.now, pods)


async def _write(cache: Cache, scaler: Object, owner: Object | None) -> bool:
    """One that another has changed or deleted meanwhile is looked at again as it is then."""
    meta = scaler["metadata"]
    try:
        if owner is not None and not meta.get("ownerReferences"):
            change = {"metadata": {"ownerReferences": [owner_reference(owner, controller=False)]}}
            made = await cache.api.patch(scaler["kind"], meta["namespace"], meta["name"], change)
            scaler = {**made, "status": scaler["status"]}
        cache.put(await cache.api.replace(scaler, status=True))
    except (NotFound, Changed) as error:
        log.info("the status of %s was not written: %s", meta["name"], error)
        return False
    return True


class UnclaimedScalers:
    """Scale objects whose job is not there."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._keys: set[Key] = set()  # of the jobs that they are about
        self._awake = asyncio.Event()

    def note(self, key: Key) -> None:
        """There may be some for this job."""
        if self._open(key):
            self._keys.add(key)
            self._awake.set()

    async def run(self) -> None:
        while True:
            self._awake.clear()
            due = await self._look()
            left = None if due is None else max(due - self._cache.clock(), 0.01)
            try:
                async with asyncio.timeout(left):
                    await self._awake.wait()
            except TimeoutError:
                pass

    async def _look(self) -> float | None:
        """When to look again."""
        times = []
        for key in list(self._keys):
            found = self._open(key)
            if not found:
                self._keys.discard(key)
            for scaler in found:
                at = scale_requests.gives_up_at(scaler)
                now = self._cache.clock()
                if now < at or not await self._refuse(scaler, key, now):
                    times.append(max(at, now + AGAIN))
        return min(times, default=None)

    def _open(self, key: Key) -> list[Object]:
        if names.TRAININGJOB in self._cache.kinds_of(key):
            return []
        return [each for each in self._cache.scalers_of(key) if not status.is_over(each)]

    async def _refuse(self, scaler: Object, key: Key, now: float) -> bool:
        namespace, job = key
        wrong = f"there is no TrainingJob {job} in {namespace}"
        record = Record(f"{namespace}/{job}", f"job/{job}", "Warning", "ScaleRefused", wrong)
        self._cache.recorder.note(scaler, record)
        shown = status.refused_status(wrong, scaler.get("status") or {}, now)
        try:
            return await _write(self._cache, {**scaler, "status": shown}, None)
        except NotLeader:
            raise
        except MidflightError as error:
            log.warning("%s/%s: %s", namespace, scaler["metadata"]["name"], error)
            return False
