"""The roles of a job's instances: names, the chief, who counts as a worker, who holds devices.

The chief is the launcher of an etjob and the master of a pytorchjob. A master is a worker as well,
a launcher is not.
"""

from midflight.controller.spec import Kind, Spec
from midflight.controller.state import (
    ENDED,
    ON_NODE,
    OPEN,
    Instance,
    Job,
    Operation,
    Role,
    Stage,
)

UP = (Stage.STARTING, Stage.RUNNING)


def chief_name(spec: Spec) -> str:
    return f"{spec.name}-launcher" if spec.kind is Kind.ETJOB else f"{spec.name}-master-0"


def worker_name(spec: Spec, index: int) -> str:
    return f"{spec.name}-worker-{index}"


def is_elastic(spec: Spec) -> bool:
    """Workers may come and go one by one."""
    return spec.kind is Kind.ETJOB or spec.elastic


def in_order(job: Job) -> list[Instance]:
    """The chief first, then workers by number."""
    return sorted(job.instances.values(), key=lambda i: (i.role is Role.WORKER, i.index))


def counted(job: Job) -> list[Instance]:
    """What `workers` counts."""
    return [instance for instance in in_order(job) if instance.role is not Role.LAUNCHER]


def staying(job: Job) -> list[Instance]:
    """Those of them that are there, or will be (again)."""
    return [i for i in counted(job) if not i.leaving and i.stage not in ENDED]


def movable(job: Job) -> list[Instance]:
    """Those that a scale operation may take away."""
    return [instance for instance in staying(job) if instance.role is Role.WORKER]


def size(job: Job) -> int:
    return len(staying(job)) if job.instances else job.wanted


def open_operations(job: Job) -> list[Operation]:
    return [operation for operation in job.operations if operation.progress in OPEN]


def projected(job: Job) -> int:
    """Its size once everything that was accepted is done."""
    waiting = open_operations(job)
    return waiting[-1].target if waiting else size(job)


def waits(instance: Instance) -> bool:
    """It is not up because there is no place for it, as far as anybody knows."""
    unplaced = instance.stage is Stage.STARTING and not instance.node
    return instance.stage is Stage.PENDING or unplaced


def holds(instance: Instance) -> bool:
    """Whether it has its devices. One that is started again soon keeps its place meanwhile."""
    return instance.stage in ON_NODE or (instance.stage is Stage.PENDING and instance.node != "")


def on_node(job: Job) -> list[Instance]:
    return [instance for instance in in_order(job) if instance.stage in ON_NODE]


def hosts(job: Job | None) -> dict[str, int]:
    """What the job's discovery says: workers that are up, and their slots."""
    if job is None:
        return {}
    return {i.name: max(i.gpus, 1) for i in counted(job) if i.stage in UP and i.node}


def slots(job: Job, workers: int) -> int:
    """Members that so many workers have."""
    return workers * max(job.spec.gpus, 1)


def is_active(job: Job) -> bool:
    """Whether anything can still happen to it without somebody asking."""
    if not job.finished or job.deleting or job.spec.ttl_after_finished is not None:
        return True
    return any(instance.stage in ON_NODE for instance in job.instances.values())
