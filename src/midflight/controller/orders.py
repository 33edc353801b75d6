"""What the observed instances tell the controller, and what is to be done about a job.

Both follow from the job's saved state and from what is observed now, wherever that is: keepers on
this machine, or pods. It does not matter how often they are asked or what was missed; who was away
for an hour finds the same as who saw every change. `news` comes first, then `handle` decides, then
`orders` says what is missing: what to create, to delete, to fetch, to write and to ask.
"""

import enum
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from midflight.controller import events, roster
from midflight.controller.commands import (
    AskResize,
    FetchCode,
    Order,
    StartInstance,
    StopInstance,
    WriteHosts,
)
from midflight.controller.scale_rules import SCALEIN
from midflight.controller.state import ON_NODE, Code, Instance, Job, Operation, Progress, Stage
from midflight.deadlines import STOP_LATE

GONE = "lost: it is gone, and nothing is known of its end"
LOOK_AGAIN = 1.0  # seconds; a pod that does not go must not be deleted all the time
_SIGTERM = -15


class Condition(enum.Enum):
    WAITING = "waiting"  # it was created, and does not run yet
    RUNNING = "running"
    OVER = "over"


@dataclass(frozen=True)
class Sighting:
    """One instance as its place has it."""

    attempt: int
    condition: Condition
    node: str = ""
    pid: int = 0
    reason: str = ""  # why it waits, or how it ended
    code: int | None = None  # of its program, once that is over; None: it never began
    lost: bool = False  # it was taken away: how its program ended means nothing
    started_at: float | None = None  # None: nobody has noted when
    ended_at: float | None = None
    ends_at: float | None = None  # it was told to end, and has until then
    can_hurry: bool = False  # told again, with less time, it ends sooner
    silent: bool = False  # nobody answers for it
    unusable: bool = False  # its program cannot run there, however often it is tried


@dataclass(frozen=True)
class Observed:
    """What one pass sees of a job, beside its saved state."""

    now: float
    instances: Mapping[str, Sighting] = field(default_factory=dict)
    fetching: str = ""  # the instance, or whatever else, that fetches the job's code
    hosts: Mapping[str, int] | None = None  # what its discovery says; None: not known
    asking: Container[str] = ()  # requests that the training is being asked
    asked_before: Container[str] = ()  # requests of a former server or operator
    ends_alone: float = 0.0  # seconds after the end of a job for its instances to end as well
    gone: str = GONE  # what is said of an instance that ran, and is not there


# --- news ---------------------------------------------------------------------------------------


def news(job: Job, observed: Observed) -> list[events.Event]:
    found: list[events.Event] = []
    for instance in job.instances.values():
        if instance.stage in ON_NODE:
            found.extend(_about(job.key, instance, observed))
    return found


def _own(instance: Instance, observed: Observed) -> Sighting | None:
    """Of this attempt; one of an earlier attempt is in the way, and no more."""
    seen = observed.instances.get(instance.name)
    return seen if seen is not None and seen.attempt == instance.attempt else None


def _about(key: str, instance: Instance, observed: Observed) -> Iterator[events.Event]:
    who, now = (key, instance.name, instance.attempt), observed.now
    if (seen := _own(instance, observed)) is None:
        if instance.stage is Stage.STOPPING:
            yield events.InstanceEnded(now, *who, _SIGTERM)
        elif instance.stage is Stage.RUNNING:
            yield events.InstanceLost(now, *who, observed.gone)
        return
    if seen.condition is Condition.WAITING:
        if instance.stage is Stage.STARTING and seen.reason != instance.reason:
            yield events.InstanceDelayed(now, *who, seen.reason)
        return
    begun = seen.condition is Condition.RUNNING or seen.code is not None
    ran = begun and not seen.lost and not seen.unusable
    if instance.stage is Stage.STARTING and ran:
        yield events.InstanceStarted(seen.started_at or now, *who, seen.pid, seen.node)
    if seen.condition is Condition.OVER:
        yield _end(who, instance, seen, seen.ended_at or now)


def _end(who: tuple[str, str, int], instance: Instance, seen: Sighting, at: float) -> events.Event:
    stopping = instance.stage is Stage.STOPPING
    if seen.lost and not stopping:
        return events.InstanceLost(at, *who, seen.reason)
    if seen.lost:
        return events.InstanceEnded(at, *who, _SIGTERM)
    if seen.unusable and not stopping:
        return events.InstanceNotStarted(at, *who, seen.reason, hopeless=True)
    if seen.code is None and instance.stage is Stage.STARTING:
        return events.InstanceNotStarted(at, *who, seen.reason)
    return events.InstanceEnded(at, *who, _SIGTERM if seen.code is None else seen.code, seen.reason)


# --- orders -------------------------------------------------------------------------------------


def orders(job: Job, observed: Observed) -> list[Order | AskResize]:
    """Hostfiles come first: a worker is out of them before it is told to end."""
    found: list[Order | AskResize] = []
    open_ = not job.finished and not job.deleting
    if open_ and roster.is_elastic(job.spec) and roster.hosts(job) != observed.hosts:
        found.append(WriteHosts(job.key, roster.hosts(job)))
    if job.code is Code.FETCHING and open_ and not observed.fetching:
        found.append(FetchCode(job.key))
    for name, seen in observed.instances.items():
        if _is_late(seen, observed.now):
            found.append(StopInstance(job.key, name, seen.attempt, 0.0, force=True))
        elif (grace := _notice(job, name, observed)) is not None:
            found.append(StopInstance(job.key, name, seen.attempt, grace))
    for instance in roster.in_order(job):
        if instance.stage is Stage.STARTING and instance.name not in observed.instances:
            found.append(StartInstance(job.key, instance.name, instance.attempt))
    return [*found, *_requests(job, observed)]


def next_look(job: Job, observed: Observed) -> float | None:
    """When there is something to do although nothing was heard."""
    found: list[float] = []
    for name, seen in observed.instances.items():
        instance = job.instances.get(name)
        if seen.ends_at is not None:
            found.append(seen.ends_at + STOP_LATE)
        elif instance is not None and instance.stage is Stage.STOPPING:
            found.append(_stops_at(job, observed))
    soonest = min((at for at in found if at > 0.0), default=None)
    if soonest is None or soonest > observed.now:
        return soonest
    return observed.now + LOOK_AGAIN  # it was ordered, and that cannot be seen yet


def _notice(job: Job, name: str, observed: Observed) -> float | None:
    """Seconds within which it is told to end; None: it stays, or was told already."""
    seen, instance = observed.instances[name], job.instances.get(name)
    if instance is None:
        needed = job.code is Code.FETCHING and name == observed.fetching
        grace = None if needed else 0.0
    else:
        grace = _grace(job, instance, observed)
    if grace is None or seen.ends_at is None:
        return grace
    sooner = observed.now + grace + 1.0 < seen.ends_at
    return grace if seen.can_hurry and sooner else None


def _grace(job: Job, instance: Instance, observed: Observed) -> float | None:
    """What is left to it; None: it stays."""
    seen, now = observed.instances[instance.name], observed.now
    if instance.stage in ON_NODE and seen.attempt != instance.attempt:
        return 0.0  # it is in the way
    if instance.stage is Stage.STOPPING and now >= _stops_at(job, observed):
        return max((instance.stop_by or now) - now, 0.0)
    if instance.stage in ON_NODE:
        return None
    if seen.condition is not Condition.OVER:
        return 0.0  # it should have ended
    return 0.0 if job.finished and job.spec.clean_policy == "All" else None


def _stops_at(job: Job, observed: Observed) -> float:
    """When it is told to end. At the end of a job instances may have a moment to end alone."""
    if not job.finished or job.deleting or not observed.ends_alone:
        return 0.0
    return (job.ended_at or 0.0) + observed.ends_alone


def _is_late(seen: Sighting, now: float) -> bool:
    """It was to end, and did not, or nobody answers for it: it is not asked any more."""
    if seen.ends_at is None:
        return False
    return seen.silent or now >= seen.ends_at + STOP_LATE


# --- the training -------------------------------------------------------------------------------


def _requests(job: Job, observed: Observed) -> Iterator[AskResize]:
    for operation in roster.open_operations(job):
        request = request_of(operation)
        if operation.progress is Progress.ASKED and request not in observed.asking:
            yield _ask(job, operation, observed)


def request_of(operation: Operation) -> str:
    """Asked again under this id, it is the same request."""
    return f"{operation.id} {operation.target} {operation.asked_at or 0.0:.6f}"


def open_requests(job: Job) -> frozenset[str]:
    """To which the training has not answered, as far as the state knows."""
    found = (o for o in roster.open_operations(job) if o.progress is Progress.ASKED)
    return frozenset(map(request_of, found))


def _ask(job: Job, operation: Operation, observed: Observed) -> AskResize:
    """Workers that are not up have no members, so if all of them are, a size says it better."""
    leaving: tuple[str, ...] = ()
    if operation.kind == SCALEIN:
        leaving = tuple(name for name in operation.workers if name in roster.hosts(job))
    request = request_of(operation)
    return AskResize(
        job.key,
        operation.id,
        None if leaving else roster.slots(job, operation.target),
        leaving,
        max(operation.deadline - observed.now, 0.0),
        request,
        request in observed.asked_before,
    )
