"""What the controller is told: each event is something that has happened, with its time.

The unions at the end are what `handle` matches on, so that the type checker finds a case that is
missing.
"""

from dataclasses import dataclass

from midflight.controller.spec import Spec
from midflight.controller.state import Node


@dataclass(frozen=True)
class _Event:
    at: float


@dataclass(frozen=True)
class ServerStarted(_Event):
    """The state was read from the journal. For every instance that should be up, InstanceStarted
    or InstanceEnded follows; commands whose outcome is not known are given again."""


@dataclass(frozen=True)
class TimePassed(_Event):
    """A deadline may be over."""


@dataclass(frozen=True)
class JobSubmitted(_Event):
    """Checked before: `spec_check.refusal` had nothing against it."""

    spec: Spec
    uid: str


@dataclass(frozen=True)
class JobDeleted(_Event):
    key: str


@dataclass(frozen=True)
class JobHeld(_Event):
    """All of it stops, and stays away until it is released."""

    key: str
    holder: str


@dataclass(frozen=True)
class JobReleased(_Event):
    key: str


@dataclass(frozen=True)
class ScaleAsked(_Event):
    """Checked before: `scale_rules.objection` had nothing against it."""

    key: str
    operation: str  # its id
    kind: str  # scaleout | scalein
    count: int
    timeout: float
    names: tuple[str, ...] = ()  # instances that are to leave (scalein)
    partial: bool = False
    source: str = ""  # uid of the object that asks, where one does


@dataclass(frozen=True)
class CodeFetched(_Event):
    key: str
    commit: str  # "" for rsync


@dataclass(frozen=True)
class CodeNotFetched(_Event):
    key: str
    reason: str


@dataclass(frozen=True)
class InstanceStarted(_Event):
    key: str
    instance: str
    attempt: int
    pid: int
    node: str = ""  # where that was not known before


@dataclass(frozen=True)
class InstanceNotStarted(_Event):
    key: str
    instance: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class InstanceDelayed(_Event):
    """It has not started yet, and this is why; said again when the reason changes."""

    key: str
    instance: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class InstanceLost(_Event):
    """It is gone through no fault of its own: deleted, evicted, or lost with its node."""

    key: str
    instance: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class InstanceEnded(_Event):
    key: str
    instance: str
    attempt: int
    code: int  # negative: the number of a signal
    reason: str = ""


@dataclass(frozen=True)
class ResizeEnded(_Event):
    """The training's answer to an AskResize."""

    key: str
    operation: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class ResizeProgressed(_Event):
    key: str
    operation: str
    detail: str


@dataclass(frozen=True)
class NodesChanged(_Event):
    """These are the nodes now; what is known of those that stay (cordoned, lost) is kept."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class NodeCordoned(_Event):
    node: str


@dataclass(frozen=True)
class NodeDrained(_Event):
    """Nothing new comes, and what is there moves to other nodes, in good order."""

    node: str


@dataclass(frozen=True)
class NodeLost(_Event):
    """Everything on it is gone, at once."""

    node: str


@dataclass(frozen=True)
class NodeReturned(_Event):
    """It can be used again, after any of the three above."""

    node: str


JobEvent = (  # of a job that is there
    JobDeleted
    | JobHeld
    | JobReleased
    | ScaleAsked
    | CodeFetched
    | CodeNotFetched
    | ResizeEnded
    | ResizeProgressed
)
InstanceEvent = (
    InstanceStarted | InstanceNotStarted | InstanceDelayed | InstanceLost | InstanceEnded
)
NodeEvent = NodesChanged | NodeCordoned | NodeDrained | NodeLost | NodeReturned
Event = ServerStarted | TimePassed | JobSubmitted | JobEvent | InstanceEvent | NodeEvent
