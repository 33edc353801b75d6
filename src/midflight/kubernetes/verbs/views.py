"""Views of jobs on a cluster: what the controller saved of one, and what only its pods know.

The same dictionaries as those of a job on one machine, so that every verb prints both alike. An
instance is shown as its pod is, if there is one; the controller's word stands where there is none.
Pure: objects and the time come in, views go out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from midflight.controller import roster
from midflight.controller.spec import shown
from midflight.controller.state import Cluster, Instance, Job, Role
from midflight.controller.views import NONE, instance_view, operation_view
from midflight.kubernetes import names
from midflight.kubernetes.names import JOB_TYPES
from midflight.kubernetes.resources import foreign, summary
from midflight.kubernetes.resources.status import seconds_of
from midflight.kubernetes.verbs import pod_status
from midflight.protocol import codec
from midflight.protocol.views import InstanceView, JobView

Object = Mapping[str, Any]
_ROLES = tuple(role.value for role in Role)


def view(obj: Object, job: Job, pods: Iterable[Object], now: float) -> JobView:
    by_name = {pod["metadata"]["name"]: pod for pod in pods if foreign.role_of(pod) in _ROLES}
    found = instances(job, by_name, now)
    chief = by_name.get(roster.chief_name(job.spec))
    kind = job.spec.kind.value
    gpus = sum(pod_status.gpus(pod) for pod in by_name.values() if pod_status.has_place(pod))
    return {
        **summary.summary(obj, kind, now, summary.of_job(obj, job, host_ip(chief))),
        "allocatedGPUs": gpus,
        "instances": found,
        "operations": [operation_view(operation) for operation in job.operations],
        "spec": codec.encode(shown(job.spec)),
    }


def broken_view(obj: Object, why: str, pods: Iterable[Object], now: float) -> JobView:
    """Of an object that is no job we understand: it is there, and that is all."""
    return {
        **summary.summary(obj, JOB_TYPES[obj["kind"]], now),
        "reason": foreign.reason(obj) or why,
        "instances": [_of_pod(pod, None, now) for pod in pods if foreign.role_of(pod) in _ROLES],
        "operations": [],
        "spec": {},
    }


def instances(job: Job, pods: Mapping[str, Object], now: float) -> list[InstanceView]:
    """Those that the controller knows, then pods of the job that it does not (any more)."""
    found = [
        _of_pod(pods[each.name], each, now)
        if each.name in pods
        else instance_view(Cluster(), each, now)
        for each in roster.in_order(job)
    ]
    others = [pod for name, pod in pods.items() if name not in job.instances]
    return [*found, *(_of_pod(pod, None, now) for pod in sorted(others, key=_order))]


def _of_pod(pod: Object, instance: Instance | None, now: float) -> InstanceView:
    meta = pod["metadata"]
    created = seconds_of(meta["creationTimestamp"])
    role = instance.role.value if instance is not None else foreign.role_of(pod)
    return {
        "name": meta["name"],
        "role": role,
        "status": pod_status.status(pod),
        "reason": pod_status.reason(pod) or (instance.reason if instance is not None else ""),
        "age": max(now - created, 0.0),
        "chief": role != Role.WORKER.value,
        "requestGPUs": pod_status.gpus(pod),
        "devices": [],  # which ones is between the node and the pod
        "node": pod["spec"].get("nodeName") or NONE,
        "nodeIP": host_ip(pod) or NONE,
        "pid": 0,
        "restarts": _restarts(pod, instance),
        "exitCode": pod_status.exit_code(pod),
        "createTime": meta["creationTimestamp"],
        "startTime": pod_status.started_at(pod),
        "endTime": pod_status.ended_at(pod),
    }


def job_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.JOB, ""))


def host_ip(pod: Object | None) -> str:
    """ "" for one that has no node yet, or is not there."""
    return str(((pod or {}).get("status") or {}).get("hostIP") or "")


def _restarts(pod: Object, instance: Instance | None) -> int:
    if instance is not None:
        return max(instance.attempt - instance.first_attempt, 0)
    label = str((pod["metadata"].get("labels") or {}).get(names.ATTEMPT, "1"))
    return max(int(label) - 1, 0) if label.isdecimal() else 0


def _order(pod: Object) -> tuple[bool, int, str]:
    index = str((pod["metadata"].get("labels") or {}).get(names.INDEX, "0"))
    is_worker = foreign.role_of(pod) == Role.WORKER.value
    return is_worker, int(index) if index.isdecimal() else 0, pod["metadata"]["name"]
