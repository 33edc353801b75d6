"""Waiting on a cluster: for a job to come to something, for a scale operation to change.

The API server tells each change of a job's object, so nothing is polled while a job is waited for.
A scale operation is in its job once the operator has taken it up; until then its own object is
looked at, which also says if it was refused.
"""

import time
from collections.abc import Callable

from midflight.controller.state import Job, Operation, Phase, Progress
from midflight.deadlines import RESIZE
from midflight.errors import NotFound, TimedOut, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.resources.status import seconds_of
from midflight.kubernetes.verbs import lookup
from midflight.kubernetes.verbs.lookup import Found

LOOK = 1.0  # seconds between two looks at the object of an operation that nobody has taken up
SCALERS = {"scaleout": names.SCALEOUT, "scalein": names.SCALEIN}


def until(
    connection: Connection, namespace: str, name: str, what: str, timeout: float
) -> Found | None:
    """The job once it is running, finished or gone; None if it is gone; TimedOut."""
    if what not in REACHED:
        raise UsageError(f"wanted until={', '.join(REACHED)}, got {what}")
    try:
        first = lookup.find(connection, namespace, name)
    except NotFound:
        if what == "gone":
            return None
        raise
    for obj in connection.changes(first.kind, namespace, name, timeout):
        if obj is None or obj["metadata"]["uid"] != first.uid:
            if what == "gone":
                return None
            raise NotFound(f"{namespace}/{name} was deleted before it was {what}")
        now = lookup.read(obj, first.kind)
        if now.job is not None and REACHED[what](now.job):
            return now
    raise TimedOut(f"{namespace}/{name} was not {what} within {timeout:g} s")


# One that has ended will not run any more, so there is nothing to wait for.
REACHED: dict[str, Callable[[Job], bool]] = {
    "running": lambda job: job.phase is not Phase.PENDING,
    "finished": lambda job: job.finished,
    "gone": lambda job: False,
}


def operation(
    connection: Connection, namespace: str, name: str, identity: str, after: int, timeout: float
) -> Operation:
    """As soon as it has changed more than `after` times, or as it is after `timeout`."""
    deadline = time.monotonic() + timeout
    found = lookup.find(connection, namespace, name)
    known = _known(connection, found, identity)
    while known.changes <= after and (left := deadline - time.monotonic()) > 0:
        piece = min(left, LOOK) if known.progress is Progress.QUEUED else left
        for obj in connection.changes(found.kind, namespace, name, piece):
            if obj is None:
                raise NotFound(f"the job {name} was deleted before {identity} had ended")
            now = lookup.read(obj, found.kind)
            taken = _of_job(now.job, identity)
            if taken is not None and taken.changes > after:
                return taken
        known = _known(connection, found, identity)
    return known


def _known(connection: Connection, found: Found, identity: str) -> Operation:
    """What is known of an operation now, by its job or else by its own object."""
    namespace, name = found.obj["metadata"]["namespace"], found.obj["metadata"]["name"]
    again = connection.find(found.kind, namespace, name)
    job = lookup.read(again, found.kind).job if again is not None else None
    if (taken := _of_job(job, identity)) is not None:
        return taken
    for kind, resource in SCALERS.items():
        if (obj := connection.find(resource, namespace, identity)) is not None:
            return of_scaler(obj, kind)
    raise NotFound(f"the job {name} has no operation {identity}")


def _of_job(job: Job | None, identity: str) -> Operation | None:
    operations = () if job is None else job.operations
    return next((each for each in operations if each.id == identity), None)


def of_scaler(obj: Object, kind: str) -> Operation:
    """One that the operator has not taken up: it waits, or it was refused."""
    spec, found = obj.get("spec") or {}, obj.get("status") or {}
    created = seconds_of(obj["metadata"]["creationTimestamp"])
    request = spec.get("toAdd") or spec.get("toDelete") or {}
    refused = found.get("phase") == "ScaleFailed"
    said = [each.get("message") or "" for each in found.get("conditions") or ()]
    timeout = float(spec.get("timeout") or RESIZE)
    return Operation(
        id=obj["metadata"]["name"],
        kind=kind,
        count=int(request.get("count") or len(request.get("podNames") or ())),
        timeout=timeout,
        created_at=created,
        deadline=created + timeout,
        workers=tuple(request.get("podNames") or ()),
        partial=bool(spec.get("partial")),
        progress=Progress.FAILED if refused else Progress.QUEUED,
        message=said[-1] if refused and said else "",
        ended_at=created if refused else None,
        changes=1 if refused else 0,
    )
