"""What the operator keeps of an object, decided as it arrives: memory is what all tenants share.

Of a job everything that somebody reads; a template that is too large to be used is replaced by its
size, and whoever checks the template says so. Of a scale object what is read of it; of one that is
over, that it is over.
"""

import json
from collections.abc import Mapping
from typing import Any

from midflight.kubernetes import names
from midflight.kubernetes.resources.templates import LARGEST_TEMPLATE, TOO_LARGE

Object = dict[str, Any]
LARGEST_STATUS = 64 * 1024  # bytes as JSON, of a scale object: a thousand pods have room in it
_UNREAD = ("managedFields",)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the whole object once more
_REPLICAS = ("etReplicaSpecs", "pytorchReplicaSpecs")
_SCALERS = (names.SCALEOUT, names.SCALEIN)
_OF_SCALER = ("selector", "toAdd", "toDelete", "timeout", "partial", "script")
_OVER = ("ScaleSucceeded", "ScaleFailed")


def reduce(obj: Object) -> Object:
    made = {**obj, "metadata": _meta(obj["metadata"])}
    if obj.get("kind") in _SCALERS:
        return {**made, "spec": _scaler_spec(obj.get("spec")), "status": _scaler_status(obj)}
    return {**made, "spec": _job_spec(obj.get("spec"))} if "spec" in obj else made


def _meta(meta: Mapping[str, Any]) -> Object:
    made = {key: value for key, value in meta.items() if key not in _UNREAD}
    notes = meta.get("annotations")
    if isinstance(notes, Mapping) and _LAST_APPLIED in notes:
        left = {key: value for key, value in notes.items() if key != _LAST_APPLIED}
        made["annotations"] = left
    return made


def _job_spec(spec: Any) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    made = dict(spec)
    for key in _REPLICAS:
        if isinstance(roles := spec.get(key), Mapping):
            made[key] = {role: _role(replicas) for role, replicas in roles.items()}
    return made


def _role(replicas: Any) -> Any:
    template = replicas.get("template") if isinstance(replicas, Mapping) else None
    if not isinstance(template, Mapping) or (size := _size(template)) <= LARGEST_TEMPLATE:
        return replicas
    return {**replicas, "template": {TOO_LARGE: size}}


def _scaler_spec(spec: Any) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    return {key: value for key, value in spec.items() if key in _OF_SCALER}


def _scaler_status(obj: Object) -> Object:
    status = obj.get("status") or {}
    phase = status.get("phase")
    if phase in _OVER or _size(status) > LARGEST_STATUS:
        return {"phase": phase}
    return dict(status)


def _size(value: Any) -> int:
    return len(json.dumps(value))
