"""What a client returns: frozen values with the names of Python, made of the API's views.

`docs/api.md` explains the fields; times are aware datetimes, ages and durations are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from midflight.protocol.views import EventView, InstanceView, JobSummary, JobView, OperationView

ENDED = ("SUCCEEDED", "FAILED", "MAX_WAIT_TIME_EXCEEDED")


@dataclass(frozen=True)
class JobInfo:
    """What a list shows of a job."""

    name: str
    namespace: str
    kind: str  # etjob | pytorchjob
    status: str  # PENDING | RUNNING | SCALING | SUCCEEDED | FAILED | MAX_WAIT_TIME_EXCEEDED
    reason: str  # why it waits or has failed
    workers: int
    min_workers: int
    max_workers: int
    requested_gpus: int
    allocated_gpus: int
    created: datetime
    started: datetime | None
    ended: datetime | None
    duration: float
    node: str
    folder: str  # "" on a cluster
    labels: Mapping[str, str]

    @property
    def is_over(self) -> bool:
        return self.status in ENDED

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCEEDED"


@dataclass(frozen=True)
class Instance:
    """A launcher, master or worker of a job."""

    name: str
    role: str
    status: str
    reason: str
    age: float
    is_chief: bool
    gpus: int
    node: str  # "N/A" before it has one
    restarts: int
    exit_code: int | None


@dataclass(frozen=True)
class Operation:
    """A change of a job's size."""

    id: str
    kind: str  # scaleout | scalein
    progress: str  # queued | placing | asked | stopping | rolling-back | succeeded | failed
    message: str
    workers: tuple[str, ...]  # that come or go
    before: int
    after: int
    created: datetime
    ended: datetime | None

    @property
    def succeeded(self) -> bool:
        return self.progress == "succeeded"


@dataclass(frozen=True)
class JobDetails(JobInfo):
    instances: tuple[Instance, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class Event:
    time: datetime
    source: str
    kind: str  # Normal | Warning
    reason: str
    message: str
    namespace: str
    job: str


def job_info(view: JobSummary) -> JobInfo:
    return JobInfo(**_job_values(view))


def job_details(view: JobView) -> JobDetails:
    return JobDetails(
        **_job_values(view),
        instances=tuple(map(_instance, view["instances"])),
        operations=tuple(map(operation, view["operations"])),
    )


def _job_values(view: JobSummary) -> dict[str, Any]:
    same = ("name", "namespace", "status", "reason", "workers", "duration", "node", "folder")
    return {key: value for key, value in view.items() if key in same} | {
        "kind": view["type"],
        "min_workers": view["minWorkers"],
        "max_workers": view["maxWorkers"],
        "requested_gpus": view["requestGPUs"],
        "allocated_gpus": view["allocatedGPUs"],
        "created": _time(view["createTime"]),
        "started": _time_if_known(view["startTime"]),
        "ended": _time_if_known(view["endTime"]),
        "labels": dict(view["labels"]),
    }


def _instance(view: InstanceView) -> Instance:
    return Instance(
        name=view["name"],
        role=view["role"],
        status=view["status"],
        reason=view["reason"],
        age=view["age"],
        is_chief=view["chief"],
        gpus=view["requestGPUs"],
        node=view["node"],
        restarts=view["restarts"],
        exit_code=view["exitCode"],
    )


def operation(view: OperationView) -> Operation:
    return Operation(
        id=view["id"],
        kind=view["kind"],
        progress=view["progress"],
        message=view["message"],
        workers=tuple(view["workers"]),
        before=view["from"],
        after=view["to"],
        created=_time(view["createTime"]),
        ended=_time_if_known(view["endTime"]),
    )


def event(view: EventView) -> Event:
    return Event(
        time=_time(view["time"]),
        source=view["source"],
        kind=view["kind"],
        reason=view["reason"],
        message=view["message"],
        namespace=view["namespace"],
        job=view["job"],
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _time_if_known(text: str | None) -> datetime | None:
    return None if text is None else _time(text)
