"""What ScaleOut and ScaleIn objects, and a changed number of replicas, request.

Objects are carried out in the order of their creation. One that cannot be carried out is refused
for good: its status says why, and nothing changes. While a job does not run yet its objects wait
for it, as long as their own timeout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midflight.controller import roster
from midflight.controller.events import ScaleAsked
from midflight.controller.scale_rules import (
    SCALEIN,
    SCALEOUT,
    bounds,
    objection,
    operation_id,
    resolve,
)
from midflight.controller.state import Job, Operation, Phase
from midflight.deadlines import RESIZE
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.status import seconds_of

REPLICAS_TIMEOUT = 600.0  # for `kubectl scale`, which cannot say
POD_LISTS = {names.SCALEOUT: "addPods", names.SCALEIN: "toDeletePods"}


@dataclass(frozen=True)
class Refusal:
    reason: str


@dataclass(frozen=True)
class _Request:
    kind: str
    count: int
    gone: tuple[str, ...]
    timeout: float
    partial: bool


def job_of(scaler: Mapping[str, Any]) -> str:
    """The name of the job that it is about; "" if it does not say."""
    try:
        spec = fields.mapping(scaler, "spec", "")
        return fields.text(fields.mapping(spec, "selector", "spec"), "name", "spec.selector")
    except UsageError:
        return ""


def order(scaler: Mapping[str, Any]) -> tuple[float, str]:
    meta = scaler["metadata"]
    return seconds_of(meta["creationTimestamp"]), meta["name"]


def gives_up_at(scaler: Mapping[str, Any]) -> float:
    """Until when it waits for its job to run."""
    try:
        return order(scaler)[0] + _timeout(fields.mapping(scaler, "spec", ""))
    except UsageError:
        return order(scaler)[0]


def judge(job: Job, scaler: Mapping[str, Any], now: float) -> ScaleAsked | Refusal | None:
    """None: later."""
    try:
        request = _request(scaler)
    except UsageError as error:
        return Refusal(str(error))
    if job.phase is Phase.PENDING and not job.deleting:
        if now < gives_up_at(scaler):
            return None
        return Refusal(f"the job {job.spec.name} did not run within {request.timeout:g} s")
    if wrong := objection(job, request.kind, request.count, request.gone, None):
        return Refusal(wrong)
    name, source = scaler["metadata"]["name"], scaler["metadata"]["uid"]
    what = (request.kind, request.count, request.timeout, request.gone, request.partial)
    return ScaleAsked(now, job.key, name, *what, source)


def _request(scaler: Mapping[str, Any]) -> _Request:
    """Raises UsageError. The schema has seen to most of it, unless an older one is installed."""
    spec = fields.mapping(scaler, "spec", "")
    kind, key = (SCALEOUT, "toAdd") if scaler["kind"] == names.SCALEOUT else (SCALEIN, "toDelete")
    said, path = fields.mapping(spec, key, "spec"), f"spec.{key}"
    gone = fields.texts(said, "podNames", path)
    count = len(gone) or fields.whole(said, "count", path)
    if count is None or count < 1:
        field = f"{path}.count" + (" or podNames" if kind == SCALEIN else "")
        raise UsageError(f"wanted {field} of at least 1, got {count or 'nothing'}")
    return _Request(kind, count, gone, _timeout(spec), bool(fields.truth(spec, "partial", "spec")))


def _timeout(spec: Mapping[str, Any]) -> float:
    return float(fields.whole(spec, "timeout", "spec") or RESIZE)


def operation_of(job: Job, scaler: Mapping[str, Any]) -> Operation | None:
    """What has become of it; one that had its name before it is another."""
    meta = scaler["metadata"]
    found = (o for o in job.operations if (o.id, o.source) == (meta["name"], meta["uid"]))
    return next(found, None)


def judge_replicas(job: Job, wanted: int, now: float) -> ScaleAsked | Refusal | None:
    """A number of replicas that somebody has written into the spec; None: later.

    It is a number to come to, so it is held against what comes of whatever is under way.
    """
    if roster.open_operations(job):
        return None
    if job.phase is Phase.PENDING and not job.deleting:
        wrong = bounds(job, job.wanted, wanted)
        return Refusal(wrong) if wrong else None
    if wrong := objection(job, "", 0, (), wanted):
        return Refusal(wrong)
    kind, count = resolve(job, "", 0, (), wanted)
    return ScaleAsked(now, job.key, operation_id(job, now), kind, count, REPLICAS_TIMEOUT)
