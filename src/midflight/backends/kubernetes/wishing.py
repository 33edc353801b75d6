"""Wishing: what ScaleOut and ScaleIn objects, and a changed number of replicas, ask for.

Objects are carried out in the order they were made. One that cannot be is refused for good, with
the reason in its status, and changes nothing. While a job is not running yet they wait for it, as
long as their own timeout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midflight.backends.kubernetes import names
from midflight.backends.kubernetes.status import seconds_of
from midflight.controller.events import ScaleAsked
from midflight.controller.scaling import SCALEIN, SCALEOUT, bounds, objection, operation_id, resolve
from midflight.controller.state import Job, Operation, Phase

TIMEOUT = 60.0  # seconds, where nothing was said
REPLICAS_TIMEOUT = 600.0  # for `kubectl scale`, which cannot say
POD_LISTS = {names.SCALEOUT: "addPods", names.SCALEIN: "toDeletePods"}


@dataclass(frozen=True)
class Refusal:
    reason: str


def job_of(scaler: Mapping[str, Any]) -> str:
    """The name of the job that it is about."""
    return str(((scaler.get("spec") or {}).get("selector") or {}).get("name") or "")


def turn(scaler: Mapping[str, Any]) -> tuple[float, str]:
    meta = scaler["metadata"]
    return seconds_of(meta["creationTimestamp"]), meta["name"]


def judge(job: Job, scaler: Mapping[str, Any], now: float) -> ScaleAsked | Refusal | None:
    """None: later."""
    spec, meta = scaler.get("spec") or {}, scaler["metadata"]
    timeout = float(spec.get("timeout") or TIMEOUT)
    kind = SCALEOUT if scaler["kind"] == names.SCALEOUT else SCALEIN
    wish = spec.get("toAdd" if kind == SCALEOUT else "toDelete") or {}
    gone = tuple(wish.get("podNames") or ())
    count = len(gone) or int(wish.get("count") or 0)
    if count < 1:
        field = "spec.toAdd.count" if kind == SCALEOUT else "spec.toDelete.count or podNames"
        return Refusal(f"wanted {field} of at least 1, got {wish.get('count') or 'nothing'}")
    if job.phase is Phase.PENDING and not job.deleting:
        if now < seconds_of(meta["creationTimestamp"]) + timeout:
            return None
        return Refusal(f"the job {job.spec.name} did not run within {timeout:g} s")
    if wrong := objection(job, kind, count, gone, None):
        return Refusal(wrong)
    partial = bool(spec.get("partial"))
    source = meta["uid"]
    return ScaleAsked(now, job.key, meta["name"], kind, count, timeout, gone, partial, source)


def operation_of(job: Job, scaler: Mapping[str, Any]) -> Operation | None:
    """What has become of it; one that had its name before it is another."""
    meta = scaler["metadata"]
    found = (o for o in job.operations if (o.id, o.source) == (meta["name"], meta["uid"]))
    return next(found, None)


def judge_replicas(job: Job, wanted: int, now: float) -> ScaleAsked | Refusal | None:
    """A number of replicas that somebody has written into the spec; None: later."""
    if job.phase is Phase.PENDING and not job.deleting:
        wrong = bounds(job, job.wanted, wanted)
        return Refusal(wrong) if wrong else None
    if wrong := objection(job, "", 0, (), wanted):
        return Refusal(wrong)
    kind, count = resolve(job, "", 0, (), wanted)
    return ScaleAsked(now, job.key, operation_id(job, now), kind, count, REPLICAS_TIMEOUT)
