"""What the coordinator knows, as frozen values.

Everything that must outlive the coordinator's own death is in here and can be written to the
store (`durable` says what has to be there before a world is announced). Times are seconds on the
clock of whoever sends the events; nothing in the core reads one.
"""

import enum
from dataclasses import dataclass, field, replace

from midflight.deadlines import MEMBER_BEAT, beat_seconds
from midflight.protocol.job import JobSpec
from midflight.protocol.world import Member, World


class Phase(enum.Enum):
    STARTING = "starting"  # no world yet
    STABLE = "stable"  # training
    PREPARING = "preparing"  # training, while a change is being prepared
    SWITCHING = "switching"  # the step of the change is published
    RECOVERING = "recovering"  # survivors form the next world
    WAITING = "waiting"  # fewer than min-np are left; they keep their memory
    RESTARTING = "restarting"  # a script that knows no Midflight is being stopped and started
    ENDING = "ending"  # training is over, processes are leaving
    SUCCEEDED = "succeeded"
    FAILED = "failed"


TRAINING = (Phase.STABLE, Phase.PREPARING, Phase.SWITCHING)
OVER = (Phase.ENDING, Phase.SUCCEEDED, Phase.FAILED)


class Mode(enum.Enum):
    UNKNOWN = "unknown"  # nobody has dialled in yet
    ELASTIC = "elastic"  # the script calls Midflight
    RESTART = "restart"  # it does not: it is stopped and started at each change


class Stage(enum.Enum):
    """How far one training process has come."""

    STARTING = "starting"
    JOINED = "joined"  # has built its model and dialled in
    ACTIVE = "active"  # in a world that was announced
    LEAVING = "leaving"  # dismissed, not gone yet


@dataclass(frozen=True)
class HostState:
    name: str
    slots: int
    address: str = ""
    connected: bool = False
    awaited: bool = False  # the coordinator was restarted, and it has not come back yet
    heard_at: float = 0.0
    failures: int = 0
    failed_at: float = 0.0
    cooling_until: float = 0.0
    leaving: bool = False  # it gave notice
    unlisted: bool = False  # discovery no longer lists it
    notice_until: float | None = None  # when a leaving host is gone
    door: str = ""  # HOST:PORT where its agent would carry the coordinator on
    came_at: float = 0.0


@dataclass(frozen=True)
class MemberState:
    name: str
    host: str
    slot: int
    address: str
    born_at: float
    stage: Stage = Stage.STARTING
    pid: int = 0
    connected: bool = False
    joined: bool = False  # has ever dialled in
    heard_at: float = 0.0
    moved_at: float = 0.0  # when its step last changed, or it last began to wait
    step: int = 0
    horizon: int = 0
    waiting: bool = False
    moved: int = 0  # bytes of state that it has sent and received
    probed_at: float | None = None
    finished: bool = False
    notice_until: float | None = None  # it has been told to end by then
    rate: float = 0.0  # steps per second, lately
    stepped_at: float | None = None  # when its step last changed; None: not heard of yet
    holds_state: bool = False
    outdated: bool = False  # but others have gone on without it
    error: str = ""
    born_rank: int = 0  # as its environment names it

    @property
    def can_give(self) -> bool:
        """Whether the others can have the training state from it."""
        return self.holds_state and not self.outdated

    @property
    def member(self) -> Member:
        return Member(self.name, self.host, self.slot, self.address)


@dataclass(frozen=True)
class Request:
    """A wish to change the size. `ticket` is the client that waits, None if nobody does."""

    ticket: int | None
    deadline: float
    to: int | None = None
    add: int = 0
    remove: int = 0
    names: tuple[str, ...] = ()
    # request | replace (its second half) | growth | shrink | notice | finish
    origin: str = "request"
    id: str = ""  # the client's own; under it the request can be asked for again
    hosts: tuple[str, ...] = ()  # whose members leave; `names` are found when its turn comes


@dataclass(frozen=True)
class Outcome:
    """How a request ended."""

    id: str
    ok: bool
    detail: str


class ChangeStage(enum.Enum):
    STARTING = "starting"  # joiners are being started
    CONNECTING = "connecting"  # the coming group is being connected in the background
    SWITCHING = "switching"  # the step is published: no way back


@dataclass(frozen=True)
class Change:
    """A planned change that is under way."""

    request: Request
    target: int  # the size that was asked for
    joiners: tuple[str, ...] = ()
    missing: int = 0  # joiners for which there is no slot yet
    leavers: tuple[str, ...] = ()
    stage: ChangeStage = ChangeStage.STARTING
    world: World | None = None
    ready: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    step: int = 0
    resumed: bool = False  # read from the store: who has settled is not known

    @property
    def has_been_entered(self) -> bool:
        """Whether a member is in the next world: all who stay have left the one before by then."""
        return self.world is not None and not self.settled.isdisjoint(self.world.names)


@dataclass(frozen=True)
class Trial:
    """A change that was made for a client, and whose world has yet to complete a step."""

    request: Request
    step: int  # from which its world is valid
    joiners: tuple[str, ...]
    wanted: int  # members, before it
    line: str  # the answer, once it has


@dataclass(frozen=True)
class Forming:
    """A world that is being formed at once (start-up and failures)."""

    world: World
    began_at: float
    deadline: float
    settled: frozenset[str] = frozenset()
    resumed: bool = False  # read from the store: it may be formed already, or may never be


@dataclass(frozen=True)
class Ended:
    """How a training process ended that was not let go."""

    host: str
    slot: int
    code: int  # negative: the number of the signal that ended it
    rank: int = -1  # -1: it was in no world
    reason: str = ""  # the last line that it said


@dataclass(frozen=True)
class State:
    spec: JobSpec
    wanted: int
    started_at: float
    phase: Phase = Phase.STARTING
    mode: Mode = Mode.UNKNOWN
    detail: str = ""
    world: World | None = None
    generation: int = 0  # the highest number ever given out
    hosts: dict[str, HostState] = field(default_factory=dict)
    listed: frozenset[str] | None = None  # the hosts that discovery names; None: it never spoke
    members: dict[str, MemberState] = field(default_factory=dict)
    change: Change | None = None
    trial: Trial | None = None
    forming: Forming | None = None
    queue: tuple[Request, ...] = ()
    outcomes: tuple[Outcome, ...] = ()  # of the latest requests, for clients that ask again
    serial: int = 0  # the number of the next member's name
    launched_at: float | None = None  # when the first members were started
    resets: int = 0
    stalls: int = 0  # unplanned worlds in a row without a completed step
    best_step: int = 0
    suspicion: float | None = None  # when a broken collective must have been explained
    suspected: int = 0  # the generation in which it broke
    blameless: bool = False  # one was lost or killed: what fails meanwhile fails because of that
    enough_since: float | None = None  # since when min_np members would fit, before the start
    broken_at: float = 0.0  # when the last world broke
    ended_at: float | None = None  # when all members were let go after training
    remind_at: float = 0.0  # when it is said next who of them has not ended
    waiting_since: float | None = None  # since when too few are there to form a world
    retry_at: float = 0.0  # before it, no change of the job's own accord is tried again
    ticked_at: float = 0.0
    # Until then silence and hang-ups prove nothing: it was the coordinator that was away.
    lenient_until: float = 0.0
    vanished: dict[str, Ended] = field(default_factory=dict)  # lost; how they ended is not told yet
    first_error: str = ""
    first_failure: Ended | None = None  # the first process that ended badly
    exit_code: int | None = None

    def named(self, world: World | None) -> list[MemberState]:
        """The members of a world that are still known, in rank order."""
        if world is None:
            return []
        return [self.members[name] for name in world.names if name in self.members]

    @property
    def size(self) -> int:
        return self.world.size if self.world else 0

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat before a member is looked at."""
        return self.spec.silence * beat_seconds(len(self.members)) / MEMBER_BEAT

    @property
    def has_begun(self) -> bool:
        """Whether there is a training state that somebody must hold."""
        return self.world is not None or self.best_step > 0


def ended(state: State, member: MemberState, code: int, said: str = "") -> Ended:
    """Before the first world, the rank is the one that the process was started with."""
    world = state.world
    rank = member.born_rank if world is None else -1
    if world is not None and member.name in world:
        rank = world.rank(member.name)
    return Ended(member.host, member.slot, code, rank, said)


def initial(spec: JobSpec, now: float) -> State:
    return State(spec=spec, wanted=spec.np, started_at=now)


def durable(state: State) -> tuple[object, ...]:
    """What must be in the store before anybody is told of it."""
    change = state.change
    return (
        state.phase if state.phase in (*OVER, Phase.RESTARTING) else None,
        state.phase in OVER and state.best_step,  # the last one, for whoever asks afterwards
        state.mode,
        state.world,
        state.generation,
        state.wanted,
        state.queue,
        state.outcomes,
        state.resets,
        state.serial,
        state.exit_code,
        state.first_failure,
        state.forming and state.forming.world,
        state.trial and state.trial.step,
        change and (change.stage, change.world, change.step, change.joiners, change.leavers),
    )


def restored(state: State, now: float, saved_at: float) -> State:
    """A state read from the store, as seen by the coordinator that takes it up.

    Nobody is connected yet. Times are moved to this one's clock; `saved_at` is what the clock
    of the saved times would show now.
    """
    shift = now - saved_at

    def later(moment: float | None) -> float | None:
        return None if moment is None else moment + shift

    hosts = {
        name: replace(
            host,
            connected=False,
            awaited=host.connected or host.awaited,
            heard_at=now,
            failed_at=host.failed_at + shift,
            cooling_until=host.cooling_until + shift,
            notice_until=later(host.notice_until),
        )
        for name, host in state.hosts.items()
    }
    members = {
        name: replace(
            member,
            connected=False,
            heard_at=now,
            moved_at=now,
            stepped_at=None,
            born_at=member.born_at + shift,
            probed_at=None,
            notice_until=later(member.notice_until),
        )
        for name, member in state.members.items()
    }
    forming = state.forming
    if forming is not None:
        forming = replace(
            forming,
            began_at=forming.began_at + shift,
            deadline=forming.deadline + shift,
            settled=frozenset(),
            resumed=True,
        )
    return replace(
        state,
        hosts=hosts,
        members=members,
        change=state.change and _resumed(state.change, shift),
        trial=state.trial
        and replace(state.trial, request=_nobody_waits(state.trial.request, shift)),
        forming=forming,
        queue=tuple(_nobody_waits(request, shift) for request in state.queue),
        started_at=state.started_at + shift,
        launched_at=later(state.launched_at),
        ended_at=later(state.ended_at),
        remind_at=state.remind_at + shift,
        waiting_since=later(state.waiting_since),
        enough_since=later(state.enough_since),
        # A broken collective is reported again; the end of a process that was dropped is not.
        suspicion=later(state.suspicion) if state.mode is Mode.RESTART else None,
        broken_at=state.broken_at + shift,
        retry_at=0.0,
        ticked_at=now,
        lenient_until=now + state.spec.lease,
    )


def _resumed(change: Change, shift: float) -> Change:
    """The keys of a group that was being connected are lost: it has to be connected anew."""
    change = replace(change, request=_nobody_waits(change.request, shift), resumed=True)
    return rewound(change) if change.stage is ChangeStage.CONNECTING else change


def rewound(change: Change) -> Change:
    """The change from its beginning, with the joiners it has."""
    return replace(
        change,
        stage=ChangeStage.STARTING,
        world=None,
        ready=frozenset(),
        settled=frozenset(),
        resumed=False,
    )


def _nobody_waits(request: Request, shift: float) -> Request:
    return replace(request, ticket=None, deadline=request.deadline + shift)
