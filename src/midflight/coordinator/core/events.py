"""What can happen to a job, in the past tense. Each event carries the moment it was noticed."""

from dataclasses import dataclass

from midflight.coordinator.core.state import Request
from midflight.protocol.messages import RunningMember


@dataclass(frozen=True)
class _Event:
    now: float


@dataclass(frozen=True)
class Ticked(_Event):
    """Time has passed; `beats` holds what members said since the last tick."""

    beats: "dict[str, Beating]"
    hosts_heard: frozenset[str]


@dataclass(frozen=True)
class Beating:
    step: int
    horizon: int
    waiting: bool
    heard_at: float
    moved: int = 0


@dataclass(frozen=True)
class HostJoined(_Event):
    host: str
    slots: int
    address: str
    members: tuple[RunningMember, ...]
    door: str = ""
    ended: frozenset[str] = frozenset()  # members whose end the agent remembers


@dataclass(frozen=True)
class HostLost(_Event):
    """The agent's connection is gone."""

    host: str
    dead: bool = False  # it is known to have died: it will not come back


@dataclass(frozen=True)
class HostNoticed(_Event):
    host: str
    notice: float


@dataclass(frozen=True)
class HostsListed(_Event):
    """Discovery says which hosts there are."""

    hosts: dict[str, int]


@dataclass(frozen=True)
class Started(_Event):
    member: str
    pid: int


@dataclass(frozen=True)
class NotStarted(_Event):
    member: str
    reason: str


@dataclass(frozen=True)
class Exited(_Event):
    member: str
    code: int
    tail: str


@dataclass(frozen=True)
class Probed(_Event):
    member: str
    state: str


@dataclass(frozen=True)
class Joined(_Event):
    member: str
    pid: int
    generation: int
    step: int
    over: int = 0  # the highest generation that it was told is over


@dataclass(frozen=True)
class Disconnected(_Event):
    member: str


@dataclass(frozen=True)
class Ready(_Event):
    member: str
    generation: int
    step: int
    horizon: int


@dataclass(frozen=True)
class NotReady(_Event):
    member: str
    generation: int
    reason: str


@dataclass(frozen=True)
class Settled(_Event):
    member: str
    generation: int
    step: int


@dataclass(frozen=True)
class Broke(_Event):
    member: str
    generation: int
    step: int
    reason: str


@dataclass(frozen=True)
class Noticed(_Event):
    member: str
    notice: float


@dataclass(frozen=True)
class Finished(_Event):
    member: str
    step: int


@dataclass(frozen=True)
class Failed(_Event):
    member: str
    error: str
    kind: str


@dataclass(frozen=True)
class Asked(_Event):
    request: Request


@dataclass(frozen=True)
class StopAsked(_Event):
    reason: str
    code: int  # 0: training is done, and its members are let go as at its end


HostEvent = HostJoined | HostLost | HostNoticed | HostsListed
ProcessEvent = Started | NotStarted | Probed  # of a member that is known, like those below
MemberEvent = Disconnected | Ready | NotReady | Settled | Noticed | Finished | Failed
Event = (
    Ticked | HostEvent | Joined | Exited | Broke | ProcessEvent | MemberEvent | Asked | StopAsked
)
