"""What a list shows of a job, at a glance: a few fields of its object, unchecked.

`reading.py` and `status.py` say what all of an object means, and check it; 500 times that is too
slow for a list. Whatever an object looks like, it is listed: what cannot be made out is left out,
and `get` says what is wrong. For a good object the two agree, which the tests see to.
"""

from collections.abc import Mapping
from typing import Any

from midflight.controller.spec import ANY_NUMBER
from midflight.controller.state import FINISHED, ON_NODE, Phase
from midflight.controller.views import NONE, time_text
from midflight.kubernetes import names
from midflight.kubernetes.resources import foreign
from midflight.kubernetes.resources.status import seconds_of
from midflight.protocol.views import JobSummary

Object = Mapping[str, Any]
QUEUING = "QUEUING"
_FINISHED = {phase.value for phase in FINISHED}
_ON_NODE = {stage.value for stage in ON_NODE}


def summary(obj: Object, kind: str, chief_ip: str, now: float) -> JobSummary:
    """`kind`: the type of the job, etjob or pytorchjob."""
    meta, job = obj["metadata"], _in(obj, "status", "midflight", "job")
    least, workers, most = _sizes(obj, kind)
    created = seconds_of(meta["creationTimestamp"])
    started, ended = _moment(obj, job, "started_at"), _moment(obj, job, "ended_at")
    wanted = _number(job.get("wanted"), workers)
    phase = phase_of(obj)
    return {
        "uid": meta["uid"],
        "name": meta["name"],
        "namespace": meta["namespace"],
        "type": kind,
        "trainer": kind.upper(),
        "status": phase,
        "reason": str(job.get("reason") or foreign.reason(obj)),
        "priority": str(_chief_pod(obj, kind).get("priorityClassName") or NONE),
        "createTime": time_text(created),
        "startTime": None if started is None else time_text(started),
        "endTime": None if ended is None else time_text(ended),
        "duration": max((ended or now) - (started or created), 0.0),
        "workers": wanted,
        "minWorkers": least,
        "maxWorkers": most,
        "requestGPUs": wanted * _gpus(obj, kind),
        "allocatedGPUs": sum(
            _number(each.get("gpus"))
            for each in _in(job, "instances").values()
            if each.get("stage") in _ON_NODE
        ),
        "chiefName": chief_name(meta["name"], kind),
        "node": chief_ip or NONE,
        "commit": str(job.get("commit") or ""),
        "folder": "",  # there is none: what belongs to a job is in its pods
        "labels": dict(meta.get("labels") or {}),
    }


def chief_name(job: str, kind: str) -> str:
    return f"{job}-launcher" if kind == "etjob" else f"{job}-master-0"


def phase_of(obj: Object) -> str:
    """The controller's, or what others say; queuing, if a queue has not let it go yet."""
    job = _in(obj, "status", "midflight", "job")
    theirs = foreign.phase(obj) if foreign.is_foreign(obj) else None
    phase = str(job.get("phase") or (theirs or Phase.PENDING).value)
    annotations = obj["metadata"].get("annotations") or {}
    idle = job.get("held") or not job.get("instances")
    held = annotations.get(names.SUSPEND) == "true" and idle
    return QUEUING if held and phase not in _FINISHED else phase


def _sizes(obj: Object, kind: str) -> tuple[int, int, int]:
    """The least, the number that was asked for at first, and the most."""
    if kind == "etjob":
        worker = _in(obj, "spec", "etReplicaSpecs", "worker")
        found = (worker.get(key) for key in ("minReplicas", "replicas", "maxReplicas"))
        least, workers, most = found
        return _number(least, 1), _number(workers, 1), _number(most, ANY_NUMBER)
    replicas = _in(obj, "spec", "pytorchReplicaSpecs")
    parts = [_in(replicas, role) for role in ("Master", "Worker") if replicas.get(role)]
    workers = sum(_number(part.get("replicas"), 1) for part in parts)
    if _in(obj, "spec").get("elasticPolicy") is None:
        return workers, workers, workers
    policy = _in(obj, "spec", "elasticPolicy")
    most = _number(policy.get("maxReplicas"), ANY_NUMBER)
    return _number(policy.get("minReplicas"), 1), workers, most


def _gpus(obj: Object, kind: str) -> int:
    """Of each worker."""
    spec = _in(obj, "spec")
    if kind == "etjob":
        if slots := _number(spec.get("slotsPerWorker")):
            return slots
        template = _in(spec, "etReplicaSpecs", "worker", "template", "spec")
    else:
        replicas = _in(spec, "pytorchReplicaSpecs")
        role = "Worker" if replicas.get("Worker") else "Master"
        template = _in(replicas, role, "template", "spec")
    containers = template.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else {}
    return _number(_in(first, "resources", "limits").get(names.GPU))


def _chief_pod(obj: Object, kind: str) -> Object:
    if kind == "etjob":
        return _in(obj, "spec", "etReplicaSpecs", "launcher", "template", "spec")
    replicas = _in(obj, "spec", "pytorchReplicaSpecs")
    role = "Master" if replicas.get("Master") else "Worker"
    return _in(replicas, role, "template", "spec")


def _moment(obj: Object, job: Object, name: str) -> float | None:
    if job:
        found = job.get(name)
        return float(found) if isinstance(found, int | float) else None
    text = _in(obj, "status").get("startTime" if name == "started_at" else "completionTime")
    return seconds_of(text) if isinstance(text, str) else None


def _in(value: object, *path: str) -> Mapping[str, Any]:
    """What is there, if it is an object; else an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _number(value: object, default: int = 0) -> int:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() else default
