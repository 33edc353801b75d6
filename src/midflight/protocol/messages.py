"""Every message that crosses a Midflight wire, as a frozen dataclass that loads quickly.

Messages to the coordinator are past tense (something happened), messages from it are imperative
(do this). `REGISTRY` is the whole vocabulary: what is not in it is refused. Three kinds of peers
dial the coordinator: agents, members and clients (the command line).
"""

from dataclasses import field

from midflight.deadlines import MEMBER_BEAT
from midflight.protocol.message import message
from midflight.protocol.pause import Pause
from midflight.protocol.world import World

# --- handshake: the only frames read before the secret is proven ------------------------------


@message
class Challenge:
    version: int
    nonce: str
    tls: bool = False  # whatever follows is encrypted


@message
class Hello:
    version: int
    role: str  # agent | member | client
    name: str
    nonce: str
    proof: str
    run: str = ""  # the run that is meant; "": whichever has this secret


@message
class Accepted:
    proof: str


@message
class Refused:
    reason: str


# --- agent to coordinator ---------------------------------------------------------------------


@message
class RunningMember:
    member: str
    slot: int
    pid: int


@message
class AgentJoined:
    """First message of an agent, and again after each reconnect."""

    slots: int
    address: str
    pid: int
    members: tuple[RunningMember, ...]
    door: str = ""  # HOST:PORT where this process would carry the coordinator on; "": it would not
    ended: tuple[str, ...] = ()  # members whose end it remembers; a probe tells it


@message
class AgentBeat:
    pass


@message
class AgentLeaving:
    """The host goes away in `notice` seconds (SIGTERM to the agent, a preemption notice)."""

    notice: float


@message
class MemberStarted:
    member: str
    pid: int
    warm: bool


@message
class MemberNotStarted:
    member: str
    reason: str


@message
class MemberExited:
    member: str
    code: int  # negative: the number of the signal that ended it
    tail: str  # the last lines of its stderr


@message
class MemberProbed:
    """What the host says of a member's process: `running`, `stopped` or `gone`."""

    member: str
    state: str


@message
class PortFound:
    port: int


@message
class StateKept:
    """This agent has the state of that number in its memory."""

    number: int


@message
class Output:
    member: str
    stream: str  # stdout | stderr
    lines: tuple[str, ...]
    at: float  # wall clock, for --timestamps


# --- coordinator to agent ---------------------------------------------------------------------


@message
class StartMember:
    member: str
    slot: int
    command: tuple[str, ...]
    run: str
    elastic_timeout: float
    grace: float
    ledger: str  # folder; "" for none
    environment: dict[str, str]  # beside what the agent itself knows


@message
class StopMember:
    """End a process: SIGTERM, and SIGKILL after `grace` seconds (0: SIGKILL at once)."""

    member: str
    grace: float


@message
class ProbeMember:
    member: str


@message
class FindPort:
    """Name a free port on your host, for a script that hosts its own rendezvous."""


@message
class AgentBeatHeard:
    pass


@message
class Shutdown:
    """Take all members down and end."""

    grace: float
    reason: str
    code: int = 0  # how the job ended


@message
class KeepState:
    """Keep this in memory: with it, another process can carry the coordinator on."""

    number: int
    host: str  # whose process carries the coordinator now
    state: str  # as it would be in a store


# --- member to coordinator --------------------------------------------------------------------


@message
class MemberJoined:
    """First message of a member, and again after each reconnect."""

    pid: int
    generation: int  # 0: has not been in any world yet
    step: int  # steps completed
    parameters: str  # fingerprint of names, shapes and types; "" if there is no model
    over: int = 0  # the highest generation that it was told is over


@message
class Beat:
    step: int
    horizon: int  # the furthest step for which data has been asked for already
    waiting: bool  # inside a collective
    moved: int = 0  # bytes of training state sent, received or, at the end, written: still alive
    samples: int = 0  # of the whole job, in the steps so far; 0: the script does not say


@message
class MemberPaused:
    """The first step in this generation is complete here. For the record; nothing follows."""

    generation: int
    step: int
    planned: bool
    pause: Pause


@message
class MemberLogged:
    """What the script passed to `job.log`; None: not a finite number. For the record, too."""

    step: int
    epoch: int
    values: dict[str, float | None]


@message
class MemberReady:
    """The group of the coming generation is connected, and buffers are at hand."""

    generation: int
    step: int
    horizon: int


@message
class MemberNotReady:
    """The coming generation could not be prepared here."""

    generation: int
    reason: str


@message
class MemberSettled:
    """This member is in the generation, holds the state, and goes on with `step`."""

    generation: int
    step: int


@message
class MemberBroke:
    """A collective of the generation failed here."""

    generation: int
    step: int
    reason: str


@message
class MemberLeaving:
    """This process has been told to end within `notice` seconds."""

    notice: float


@message
class MemberFinished:
    """The script has come to the end of its training."""

    step: int
    samples: int = 0  # as in a Beat


@message
class MemberFailed:
    """The script raised; what it would have printed is in `error`."""

    error: str
    kind: str  # the exception's class


@message
class KeySet:
    generation: int
    key: str
    value: str  # base64


@message
class KeyAdd:
    generation: int
    key: str
    amount: int
    ticket: int


@message
class KeysWanted:
    """Answer with KeyValues as soon as all keys are there."""

    generation: int
    keys: tuple[str, ...]
    ticket: int


@message
class RankKeysWanted:
    """Answer with RankKeys as soon as the keys `prefix`0, `prefix`1, ... of all ranks are there."""

    generation: int
    prefix: str
    size: int


# --- coordinator to member --------------------------------------------------------------------


@message
class Form:
    """Form this world now: connect, agree on the newest step, pass the state on, go on."""

    world: World


@message
class Prepare:
    """Connect this coming world in the background, while training goes on in the old one."""

    world: World
    joiners: tuple[str, ...]


@message
class Switch:
    """From `step` on, the prepared world is valid. Members that it does not name leave there."""

    world: World
    joiners: tuple[str, ...]
    step: int


@message
class Abandon:
    """Forget the prepared generation; it will never be."""

    generation: int


@message
class Over:
    """This generation and all before it are over: cut their connections, so that calls fail."""

    generation: int


@message
class Dismiss:
    """Nothing more is wanted of this member. `failed` says that it should end with an error.

    `first`: after training, the first of those who are left: it does what is done once for all.
    """

    reason: str
    failed: bool
    first: str = ""


@message
class KeyValues:
    ticket: int
    values: tuple[str, ...]


@message
class RankKeys:
    """The same for all members of the generation, so that it is encoded once."""

    generation: int
    prefix: str
    values: tuple[str, ...]  # by rank


@message
class BeatHeard:
    seconds: float = MEMBER_BEAT  # from one heartbeat to the next


# --- clients ----------------------------------------------------------------------------------


@message
class ResizeRequested:
    """Change the number of members. Exactly one of `to`, `add`/`remove`/`names` is meant.

    Asked again under the same `id`, after a lost connection or a restart, it is the same request:
    it is carried out once, and its answer is given again.
    """

    to: int | None
    add: int
    remove: int
    names: tuple[str, ...]  # members that leave, by name
    timeout: float  # seconds until it is taken back, unless the switch has begun
    id: str = ""  # "": it cannot be asked for again
    hosts: tuple[str, ...] = ()  # whose members leave, instead of `names`


@message
class StatusRequested:
    pass


@message
class StopRequested:
    reason: str
    complete: bool = False  # training is done: members are let go at a boundary, as at its end


@message
class HostsChanged:
    """The launcher's discovery says which hosts there are now (host name to slots)."""

    hosts: dict[str, int]


@message
class JobLives:
    """The job of this name is under way already, and its coordinator is there: join it."""

    address: str


@message
class Progress:
    """How far a request is; repeated every second, so that the client knows that it is heard."""

    line: str


@message
class RequestEnded:
    ok: bool
    detail: str


@message
class MemberStatus:
    name: str
    rank: int | None  # None: not in the world (yet, or any more)
    host: str
    pid: int
    step: int
    state: str


@message
class HostStatus:
    name: str
    slots: int
    connected: bool
    cooling: float  # seconds until it is used again


@message
class Status:
    name: str
    phase: str
    detail: str
    generation: int
    step: int
    wanted: int
    min_np: int
    max_np: int
    resets: int
    members: tuple[MemberStatus, ...]
    hosts: tuple[HostStatus, ...]
    steps_per_second: float = 0.0
    samples_per_second: float = 0.0  # 0: the script does not say
    logged: dict[str, float | None] = field(default_factory=dict)  # the latest of job.log


def _vocabulary() -> dict[str, type]:
    kinds = {
        name: kind
        for name, kind in globals().items()
        if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__")
    }
    return {name: kind for name, kind in kinds.items() if name not in _PARTS}


_PARTS = {"World", "RunningMember", "MemberStatus", "HostStatus", "Pause"}
REGISTRY: dict[str, type] = _vocabulary()
