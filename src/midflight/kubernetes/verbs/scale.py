"""Scaling on a cluster: a request becomes a ScaleOut or ScaleIn object, checked here first.

The operator checks it again later; what is wrong now is better said now. The object has the name of
the operation, NAME-SECONDS, with a later second if that one is taken.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from midflight.controller import roster, scale_rules
from midflight.controller.state import Job, Operation
from midflight.deadlines import LONGEST_RESIZE, RESIZE
from midflight.errors import Exists, Refused, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.manifests import job as manifests
from midflight.kubernetes.verbs import lookup, requests
from midflight.kubernetes.verbs.wait import SCALERS


def scale(
    connection: Connection, namespace: str, name: str, request: Mapping[str, Any], user: str
) -> Operation:
    """`user`: who asks; it is kept in the object."""
    found = lookup.find(connection, namespace, name)
    job = lookup.job_of(found)
    operation = wanted(job, request, time.time())
    while True:
        try:
            _create(connection, job, operation, user)
            break
        except Exists:
            operation = _next(job, operation)
    deed = requests.scaled(SCALERS[operation.kind], operation.id)
    requests.note(connection, found.obj, deed, user)
    return operation


def wanted(job: Job, request: Mapping[str, Any], now: float) -> Operation:
    """The operation that a request comes to; Refused in the controller's words if it cannot be."""
    names, to = tuple(request.get("names") or ()), request.get("to")
    kind, count = str(request.get("kind") or ""), int(request.get("count", 1))
    timeout = float(request.get("timeout", RESIZE))
    if not 0 < timeout <= LONGEST_RESIZE:
        raise UsageError(f"wanted a timeout of 1 to {LONGEST_RESIZE} seconds, got {timeout:g}")
    if wrong := scale_rules.objection(job, kind, count, names, to):
        raise Refused(wrong)
    kind, count = scale_rules.resolve(job, kind, count, names, to)
    was = roster.projected(job)
    return Operation(
        id=scale_rules.operation_id(job, now),
        kind=kind,
        count=count,
        timeout=float(math.ceil(timeout)),  # objects have whole seconds
        created_at=now,
        deadline=now + timeout,
        workers=names,
        was=was,
        target=was + count if kind == scale_rules.SCALEOUT else was - count,
        partial=bool(request.get("partial")),
    )


def _next(job: Job, operation: Operation) -> Operation:
    taken = int(operation.id.rpartition("-")[2])
    return replace(operation, id=scale_rules.operation_id(job, taken + 1))


def _create(connection: Connection, job: Job, operation: Operation, user: str) -> None:
    """Exists if an object of either kind has the name."""
    for kind, resource in SCALERS.items():
        if kind != operation.kind and connection.find(resource, job.spec.namespace, operation.id):
            raise Exists(f"{operation.id} is taken")
    request = {
        "count": operation.count,
        "names": operation.workers,
        "timeout": operation.timeout,
        "partial": operation.partial,
    }
    spec = job.spec
    made = manifests.scale_object(operation.kind, spec.name, operation.id, request, spec.namespace)
    made["metadata"]["annotations"] = {names.USERNAME: user}
    connection.create(made)
