"""Keeps the ends of the logs of failed pods before they are deleted to be started again.

A log that cannot be read in time is given up: whoever is started again does not wait for it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from midflight.controller.commands import StopInstance
from midflight.controller.state import Job, Role
from midflight.errors import Exists, MidflightError, NotFound
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AsyncConnection, Object
from midflight.kubernetes.operator.observed import Pods
from midflight.kubernetes.pods import dependents
from midflight.kubernetes.resources import kept_logs
from midflight.kubernetes.resources.pod import Pod

SECONDS = 5.0  # for all logs of one pass
LINES = 300  # of each log; a container's runtime has at most 16 KiB in one

log = logging.getLogger("midflight.operator")


def failed_pods(job: Job, deletions: Sequence[StopInstance], pods: Pods) -> list[Pod]:
    """Those whose program failed by itself, the chief first; of many, as many as are kept."""
    if job.deleting:
        return []
    found = [pods[each.instance] for each in deletions if each.instance in pods]
    failed = [
        pod
        for pod in found
        if pod.name in job.instances
        and (pod.phase == "Failed" and pod.failed_container != "")
        and not (pod.taken or pod.told or pod.ends_at is not None)
    ]
    failed.sort(key=lambda pod: (pod.role == Role.WORKER.value, pod.name))
    return failed[: kept_logs.MOST]


async def keep_logs(
    api: AsyncConnection, obj: Object, job: Job, pods: Sequence[Pod], now: float
) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            found = {kept_logs.key(pod, now): await _end_of_log(api, pod) for pod in pods}
            if added := {key: text for key, text in found.items() if text}:
                await _write(api, obj, job, added)
    except (MidflightError, TimeoutError) as error:
        log.info("the logs of failed pods of %s are not kept: %s", job.key, error)


async def _end_of_log(api: AsyncConnection, pod: Pod) -> str:
    try:
        return kept_logs.end_of(await api.log(pod.namespace, pod.name, pod.failed_container, LINES))
    except NotFound:
        return ""


async def _write(api: AsyncConnection, obj: Object, job: Job, added: Mapping[str, str]) -> None:
    made = dependents.logs(obj, added)
    try:
        await api.create(made)
    except Exists:
        name = names.logs_map(job.spec.name)
        there = await api.get("ConfigMap", job.spec.namespace, name)
        owners = {each["uid"] for each in there["metadata"].get("ownerReferences") or ()}
        if job.uid not in owners:
            raise MidflightError(f"there is a ConfigMap {name} that is not the job's") from None
        change = {"data": kept_logs.change(there.get("data") or {}, added)}
        await api.patch("ConfigMap", job.spec.namespace, name, change)
