"""Scale objects: writes the outcome of each into its status, and deletes the oldest.

The loop of a job writes those of its job; `unclaimed.py` has those whose job does not exist.
"""

import logging
from collections.abc import Iterable
from typing import Any

from midflight.controller.state import Job, Phase
from midflight.errors import NotFound
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.decision import Decision
from midflight.kubernetes.resources import status
from midflight.kubernetes.resources.labels import owner_reference

KEPT = 50  # that are over, for each job

log = logging.getLogger("midflight.operator")


async def show(cache: Cache, obj: Object, job: Job, decision: Decision) -> bool:
    """Of one job; whether all that was new could be written."""
    found = cache.scalers_of((job.spec.namespace, job.spec.name))
    well = True
    for scaler in found:
        shown = _status(scaler, job, decision)
        if shown is not None and shown != (scaler.get("status") or {}):
            well = await write(cache, {**scaler, "status": shown}, obj) and well
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


async def write(cache: Cache, scaler: Object, owner: Object | None) -> bool:
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
