"""What the HTTP API shows, as typed dictionaries; `docs/api.md` explains the keys.

Keys are part of the interface: they stay, and new ones may be added. Times are RFC 3339 text, ages
and durations are seconds. These are dictionaries because they are printed as they came.
"""

from datetime import datetime, timezone
from typing import Any, TypedDict


def time_text(at: float) -> str:
    """RFC 3339, in UTC."""
    text = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class InstanceView(TypedDict):
    name: str
    role: str
    status: str
    reason: str
    age: float
    chief: bool
    requestGPUs: int
    devices: list[int]
    node: str  # "N/A" before it has one
    nodeIP: str
    pid: int
    restarts: int
    exitCode: int | None
    createTime: str
    startTime: str | None
    endTime: str | None


# "from" is a word of the language, so this one cannot be written as a class.
OperationView = TypedDict(
    "OperationView",
    {
        "id": str,
        "kind": str,
        "count": int,
        "partial": bool,
        "progress": str,
        "message": str,
        "workers": list[str],
        "from": int,
        "to": int,
        "timeout": float,
        "createTime": str,
        "endTime": str | None,
        "changes": int,
    },
)


class JobSummary(TypedDict):
    """What a list shows."""

    uid: str
    name: str
    namespace: str
    type: str
    trainer: str
    status: str
    reason: str
    priority: str
    createTime: str
    startTime: str | None
    endTime: str | None
    duration: float
    workers: int
    minWorkers: int
    maxWorkers: int
    requestGPUs: int
    allocatedGPUs: int
    chiefName: str
    node: str
    commit: str
    folder: str
    labels: dict[str, str]


class JobView(JobSummary):
    instances: list[InstanceView]
    operations: list[OperationView]
    spec: dict[str, Any]


class NodeView(TypedDict):
    name: str
    address: str
    role: str
    status: str
    gpus: int
    allocatedGPUs: int
    labels: dict[str, str]
    virtual: bool
    instances: list[str]


class GpuView(TypedDict):
    """How busy one device is, where that can be known."""

    index: int
    dutyCycle: int  # percent
    memoryUsed: int  # bytes
    memoryTotal: int


class EventView(TypedDict):
    time: str
    source: str
    kind: str
    reason: str
    message: str
    namespace: str
    job: str


class ServerView(TypedDict):
    version: str
    pid: int
    startedAt: str
    home: str
    jobs: dict[str, int]
    nodes: int


class PrunedView(TypedDict):
    name: str
    namespace: str
    type: str
    age: float


class ErrorView(TypedDict):
    error: str
    kind: str  # usage | conflict | not-found | refused | unavailable | timeout | internal
