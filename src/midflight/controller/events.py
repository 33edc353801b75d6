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
class _OfJob(_Event):
    key: str


@dataclass(frozen=True)
class _OfInstance(_OfJob):
    instance: str
    attempt: int


@dataclass(frozen=True)
class _OfNode(_Event):
    node: str


@dataclass(frozen=True)
class ServerStarted(_Event):
    """The state was read from where it was saved: whatever is due is settled."""


@dataclass(frozen=True)
class TimePassed(_Event):
    """A deadline may be over."""


@dataclass(frozen=True)
class JobSubmitted(_Event):
    """Checked before: `spec_check.refusal` had nothing against it."""

    spec: Spec
    uid: str


@dataclass(frozen=True)
class JobDeleted(_OfJob):
    pass


@dataclass(frozen=True)
class JobHeld(_OfJob):
    """All of it stops, and stays away until it is released."""

    holder: str


@dataclass(frozen=True)
class JobReleased(_OfJob):
    pass


@dataclass(frozen=True)
class ScaleAsked(_OfJob):
    """Checked before: `scale_rules.objection` had nothing against it."""

    operation: str  # its id
    kind: str  # scaleout | scalein
    count: int
    timeout: float
    names: tuple[str, ...] = ()  # instances that are to leave (scalein)
    partial: bool = False
    source: str = ""  # uid of the object that asks, where one does


@dataclass(frozen=True)
class CodeFetched(_OfJob):
    commit: str  # "" for rsync


@dataclass(frozen=True)
class CodeNotFetched(_OfJob):
    reason: str


@dataclass(frozen=True)
class InstanceStarted(_OfInstance):
    pid: int
    node: str = ""  # where that was not known before


@dataclass(frozen=True)
class InstanceNotStarted(_OfInstance):
    reason: str
    hopeless: bool = False  # it would be the same the next time


@dataclass(frozen=True)
class InstanceDelayed(_OfInstance):
    """It has not started yet, and this is why; said again when the reason changes."""

    reason: str


@dataclass(frozen=True)
class InstanceLost(_OfInstance):
    """It is gone through no fault of its own: deleted, evicted, or lost with its node."""

    reason: str


@dataclass(frozen=True)
class InstanceEnded(_OfInstance):
    code: int  # negative: the number of a signal
    reason: str = ""


@dataclass(frozen=True)
class ResizeEnded(_OfJob):
    """The training's answer to an AskResize."""

    operation: str
    ok: bool
    detail: str


@dataclass(frozen=True)
class ResizeProgressed(_OfJob):
    operation: str
    detail: str


@dataclass(frozen=True)
class InstanceNoted(_OfJob):
    """Something about an instance that people may want to know."""

    instance: str
    line: str


@dataclass(frozen=True)
class NodesChanged(_Event):
    """These are the nodes now; what is known of those that stay (cordoned, lost) is kept."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class NodeCordoned(_OfNode):
    pass


@dataclass(frozen=True)
class NodeDrained(_OfNode):
    """Nothing new comes, and what is there moves to other nodes, in good order."""


@dataclass(frozen=True)
class NodeLost(_OfNode):
    """Everything on it is gone, at once."""


@dataclass(frozen=True)
class NodeReturned(_OfNode):
    """It can be used again, after any of the three above."""


JobEvent = (  # of a job that is there
    JobDeleted
    | JobHeld
    | JobReleased
    | ScaleAsked
    | CodeFetched
    | CodeNotFetched
    | ResizeEnded
    | ResizeProgressed
    | InstanceNoted
)
InstanceEvent = (
    InstanceStarted | InstanceNotStarted | InstanceDelayed | InstanceLost | InstanceEnded
)
NodeEvent = NodesChanged | NodeCordoned | NodeDrained | NodeLost | NodeReturned
Event = ServerStarted | TimePassed | JobSubmitted | JobEvent | InstanceEvent | NodeEvent
