"""The number of workers in a job's object: where it stands, to read it and to change it.

A TrainingJob's workers are those of `worker`; a PyTorchJob's master is one of them.
"""

import copy
from collections.abc import Mapping
from typing import Any

from midflight.kubernetes import names


def workers(obj: Mapping[str, Any]) -> int:
    return _worker_replicas(obj) + _masters(obj)


def patch(obj: Mapping[str, Any], count: int) -> dict[str, Any]:
    """What makes it `count` workers, as a merge patch."""
    outer, inner = _path(obj)
    return {"spec": {outer: {inner: {"replicas": count - _masters(obj)}}}}


def with_workers(obj: Mapping[str, Any], count: int) -> dict[str, Any]:
    changed = copy.deepcopy(dict(obj))
    outer, inner = _path(obj)
    changed["spec"][outer][inner]["replicas"] = count - _masters(obj)
    return changed


def has_no_master(obj: Mapping[str, Any]) -> bool:
    """A PyTorchJob of workers alone, as Kubeflow's elastic examples are."""
    return obj["kind"] == names.PYTORCHJOB and _masters(obj) == 0


def _path(obj: Mapping[str, Any]) -> tuple[str, str]:
    if obj["kind"] == names.PYTORCHJOB:
        return "pytorchReplicaSpecs", "Worker"
    return "etReplicaSpecs", "worker"


def _worker_replicas(obj: Mapping[str, Any]) -> int:
    outer, inner = _path(obj)
    found = ((obj["spec"].get(outer) or {}).get(inner) or {}).get("replicas")
    return 0 if found is None else int(found)


def _masters(obj: Mapping[str, Any]) -> int:
    if obj["kind"] != names.PYTORCHJOB:
        return 0
    master = (obj["spec"].get("pytorchReplicaSpecs") or {}).get("Master")
    return 0 if master is None else int(master.get("replicas", 1))
