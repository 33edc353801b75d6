"""What the controller knows: nodes, and jobs with their instances and scale operations.

All of it is frozen, is written to the journal as it is, and is changed by `replace`. Times are
seconds since the epoch, brought by the events; nothing here reads a clock.
"""

import enum
from dataclasses import dataclass, field

from midflight.controller.spec import Spec


class Phase(enum.Enum):
    """What `list` shows of a job."""

    PENDING = "PENDING"  # not enough instances are up
    RUNNING = "RUNNING"
    SCALING = "SCALING"  # running, while a scale operation is under way
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    MAX_WAIT_TIME_EXCEEDED = "MAX_WAIT_TIME_EXCEEDED"


FINISHED = (Phase.SUCCEEDED, Phase.FAILED, Phase.MAX_WAIT_TIME_EXCEEDED)


class Code(enum.Enum):
    """How far the code is that a job wants fetched."""

    NONE = "none"  # it wants none
    FETCHING = "fetching"
    READY = "ready"


class Role(enum.Enum):
    LAUNCHER = "launcher"
    MASTER = "master"
    WORKER = "worker"


class Stage(enum.Enum):
    """What `get` shows of an instance."""

    PENDING = "Pending"  # no node for it yet
    STARTING = "Starting"  # a node was chosen, its process is not known to run yet
    RUNNING = "Running"
    STOPPING = "Terminating"
    COMPLETED = "Completed"  # ended by itself with 0, or because it was told to
    ERROR = "Error"  # ended badly, or was lost with its node


ENDED = (Stage.COMPLETED, Stage.ERROR)
ON_NODE = (Stage.STARTING, Stage.RUNNING, Stage.STOPPING)  # it holds its devices


@dataclass(frozen=True)
class Instance:
    """One launcher, master or worker: a process group here, a pod on a cluster."""

    name: str
    role: Role
    index: int
    gpus: int  # devices that it takes of its node
    created_at: float
    stage: Stage = Stage.PENDING
    reason: str = ""  # why it waits, or how it ended
    node: str = ""
    devices: tuple[int, ...] = ()
    attempt: int = 0  # of its name, so far; an event about an older one is stale
    first_attempt: int = 1  # more than 1 if there was another one of its name before
    pid: int = 0
    started_at: float | None = None  # of this attempt
    ended_at: float | None = None
    exit_code: int | None = None  # negative: the number of a signal
    stop_by: float | None = None  # when a stopping one is killed
    retry_at: float = 0.0  # not started again before
    leaving: bool = False  # it is to be gone for good once it has ended
    failures: int = 0  # bad ends in a row; each makes the pause before the next start longer


class Progress(enum.Enum):
    """How far a scale operation has come."""

    QUEUED = "queued"  # another one is under way
    PLACING = "placing"  # new instances wait for room, or start
    ASKED = "asked"  # the training has been asked
    STOPPING = "stopping"  # it has agreed, and instances are leaving
    ROLLING_BACK = "rolling-back"  # it has not, and new instances are leaving
    SUCCEEDED = "succeeded"
    FAILED = "failed"


OPEN = (Progress.QUEUED, Progress.PLACING, Progress.ASKED, Progress.STOPPING, Progress.ROLLING_BACK)


@dataclass(frozen=True)
class Operation:
    """A change of a job's number of workers, asked for by somebody."""

    id: str  # NAME-SECONDS, as the guides show it
    kind: str  # scaleout | scalein
    count: int
    timeout: float
    created_at: float
    deadline: float
    workers: tuple[str, ...] = ()  # the instances that come or go
    was: int = 0  # workers before
    target: int = 0  # and afterwards
    partial: bool = False  # take what came in time
    progress: Progress = Progress.QUEUED
    message: str = ""
    asked_at: float | None = None
    ended_at: float | None = None
    changes: int = 0  # how often it has changed
    source: str = ""  # uid of the object that asked for it, where one did


@dataclass(frozen=True)
class Job:
    spec: Spec
    uid: str
    created_at: float
    wanted: int  # workers
    phase: Phase = Phase.PENDING
    reason: str = ""
    code: Code = Code.NONE
    commit: str = ""  # what the code was resolved to, at first
    instances: dict[str, Instance] = field(default_factory=dict)
    operations: tuple[Operation, ...] = ()  # oldest first
    attempts: dict[str, int] = field(default_factory=dict)  # of instances that are gone, by name
    restarts: int = 0
    restarted_at: float | None = None  # when the last of those was counted
    started_at: float | None = None  # when it first ran
    ended_at: float | None = None
    deleting: bool = False  # it goes as soon as its instances are gone
    held: str = ""  # who keeps it from running, for now
    released_at: float | None = None  # when that last ended

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED


class NodeStage(enum.Enum):
    READY = "Ready"
    CORDONED = "Ready,SchedulingDisabled"  # what is there stays, nothing new comes
    LOST = "NotReady"


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    gpus: int  # devices, or CPU slots that serve as such
    labels: dict[str, str] = field(default_factory=dict)
    role: str = "<none>"
    stage: NodeStage = NodeStage.READY
    virtual: bool = False  # its devices are CPU slots


@dataclass(frozen=True)
class Cluster:
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)  # by key, NAMESPACE/NAME
    placed_elsewhere: bool = False  # a scheduler of its own chooses nodes, as on Kubernetes
    # Keys of the jobs to which anything can still happen by itself, so that finished ones cost
    # nothing. It follows from the jobs; None: not counted yet.
    active: frozenset[str] | None = None
