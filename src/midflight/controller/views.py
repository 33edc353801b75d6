"""Views: the state as the API shows it, in the dictionaries of `protocol/views.py`.

What is shown is what is: GPUs are counted from the instances that have them, an age is that of the
instance itself, and the duration of a job stops when the job does. Secrets are hidden.
"""

from midflight.controller import roster
from midflight.controller.commands import Record
from midflight.controller.spec import shown
from midflight.controller.state import ON_NODE, Cluster, Instance, Job, Node, Operation, Role
from midflight.protocol import codec
from midflight.protocol.views import (
    EventView,
    InstanceView,
    JobSummary,
    JobView,
    NodeView,
    OperationView,
    PrunedView,
    time_text,
)

NONE = "N/A"
EVERYWHERE = "*"


def summary(cluster: Cluster, job: Job, now: float, folder: str) -> JobSummary:
    spec = job.spec
    chief = job.instances.get(roster.chief_name(spec))
    return {
        "uid": job.uid,
        "name": spec.name,
        "namespace": spec.namespace,
        "type": spec.kind.value,
        "trainer": spec.kind.value.upper(),
        "status": job.phase.value,
        "reason": job.reason,
        "priority": spec.container.priority or NONE,
        "createTime": time_text(job.created_at),
        "startTime": _time_or_none(job.started_at),
        "endTime": _time_or_none(job.ended_at),
        "duration": duration(job, now),
        "workers": job.wanted,
        "minWorkers": spec.least,
        "maxWorkers": spec.most,
        "requestGPUs": job.wanted * spec.gpus,
        "allocatedGPUs": _allocated(job),
        "chiefName": roster.chief_name(spec),
        "node": _address(cluster, chief.node) if chief is not None else NONE,
        "commit": job.commit,
        "folder": folder,
        "labels": spec.labels,
    }


def view(cluster: Cluster, job: Job, now: float, folder: str) -> JobView:
    return {
        **summary(cluster, job, now, folder),
        "instances": [instance_view(cluster, i, now) for i in roster.in_order(job)],
        "operations": [operation_view(operation) for operation in job.operations],
        "spec": codec.encode(shown(job.spec)),
    }


def _allocated(job: Job) -> int:
    return sum(i.gpus for i in job.instances.values() if i.stage in ON_NODE and i.node)


def duration(job: Job, now: float) -> float:
    """Seconds it has run, or waited so far."""
    end = now if job.ended_at is None else job.ended_at
    start = job.created_at if job.started_at is None else job.started_at
    return max(end - start, 0.0)


def instance_view(cluster: Cluster, instance: Instance, now: float) -> InstanceView:
    return {
        "name": instance.name,
        "role": instance.role.value,
        "status": instance.stage.value,
        "reason": instance.reason,
        "age": max(now - instance.created_at, 0.0),
        "chief": instance.role is not Role.WORKER,
        "requestGPUs": instance.gpus,
        "devices": list(instance.devices),
        "node": instance.node or NONE,
        "nodeIP": _address(cluster, instance.node),
        "pid": instance.pid,
        "restarts": max(instance.attempt - instance.first_attempt, 0),
        "exitCode": None if instance.stage in ON_NODE else instance.exit_code,
        "createTime": time_text(instance.created_at),
        "startTime": _time_or_none(instance.started_at),
        "endTime": _time_or_none(instance.ended_at),
    }


def operation_view(operation: Operation) -> OperationView:
    return {
        "id": operation.id,
        "kind": operation.kind,
        "count": operation.count,
        "partial": operation.partial,
        "progress": operation.progress.value,
        "message": operation.message,
        "workers": list(operation.workers),
        "from": operation.was,
        "to": operation.target,
        "timeout": operation.timeout,
        "createTime": time_text(operation.created_at),
        "endTime": _time_or_none(operation.ended_at),
        "changes": operation.changes,
    }


def node_view(cluster: Cluster, node: Node) -> NodeView:
    keys = cluster.jobs if cluster.active is None else cluster.active
    here = [
        (key, instance)
        for key in sorted(keys)
        for instance in roster.in_order(cluster.jobs[key])
        if instance.node == node.name and roster.holds(instance)
    ]
    return {
        "name": node.name,
        "address": node.address,
        "role": node.role,
        "status": node.stage.value,
        "gpus": node.gpus,
        "allocatedGPUs": sum(len(instance.devices) for _, instance in here),
        "labels": node.labels,
        "virtual": node.virtual,
        "instances": [f"{key}/{instance.name}" for key, instance in here],
    }


def event_view(record: Record, at: float) -> EventView:
    namespace, _, name = record.key.partition("/")
    return {
        "time": time_text(at),
        "source": record.source,
        "kind": record.kind,
        "reason": record.reason,
        "message": record.message,
        "namespace": namespace,
        "job": name,
    }


def prunable(cluster: Cluster, namespace: str, since: float, now: float) -> list[PrunedView]:
    """Finished jobs, and no others, that ended at least `since` seconds ago; the first first."""
    found = [
        (job.ended_at, job)
        for job in cluster.jobs.values()
        if job.finished
        and job.ended_at is not None
        and not job.deleting
        and namespace in (EVERYWHERE, job.spec.namespace)
    ]
    return [
        {
            "name": job.spec.name,
            "namespace": job.spec.namespace,
            "type": job.spec.kind.value,
            "age": now - ended_at,
        }
        for ended_at, job in sorted(found, key=lambda each: each[0])
        if now - ended_at >= since
    ]


def _time_or_none(at: float | None) -> str | None:
    return None if at is None else time_text(at)


def _address(cluster: Cluster, name: str) -> str:
    node = cluster.nodes.get(name)
    return node.address if node is not None else NONE
