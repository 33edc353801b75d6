"""What size is wished for, by whom, and which wish is next.

People ask for sizes, hosts and members give notice, members finish before the others do, and the
job itself grows back to the wanted size when there is room. A notice cannot wait, so it comes
first, as does whoever holds up all the others; people come before the job itself.
"""

from dataclasses import replace

from midflight.coordinator.core import hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.state import MemberState, Mode, Request, Stage, State
from midflight.quantities import counted

GATHER = 0.5  # seconds
EARLY_SECONDS = 1.0  # all others have waited so long for a member whose script has ended
OWN_WISHES = (
    "growth",
    "shrink",
    "notice",
    "finish",
)  # they arise anew as long as there is reason for them


def target_of(request: Request, state: State) -> int:
    """The size that a request asks for."""
    if request.to is not None:
        return request.to
    if request.origin == "notice":
        return max(state.size - len(request.names), state.spec.min_np)
    if request.origin != "request":
        return state.size - len(request.names)
    return state.wanted + request.add - request.remove - len(request.names)


def objection(request: Request, state: State) -> str | None:
    """Why a request cannot be accepted, or None."""
    if request.add < 0 or request.remove < 0:
        return f"counts must not be negative, got add {request.add} and remove {request.remove}"
    if request.to is not None and (request.add or request.remove or request.names):
        return "ask for a size, or for members to come and go, not for both"
    known = set(state.world.names) if state.world else set()
    for number, name in enumerate(request.names):
        if name not in known:
            return (
                f"no member is named {name!r}; there are {', '.join(sorted(known)) or 'none yet'}"
            )
        if name in request.names[:number]:
            return f"{name} was named twice"
    target = target_of(request, state)
    if target > max(state.spec.max_np, state.size):  # while all are replaced there are more
        return f"{counted(target, 'member')} would be more than --max-np {state.spec.max_np}"
    if target < state.spec.min_np:
        return f"{counted(target, 'member')} would be fewer than --min-np {state.spec.min_np}"
    return None


def resolved(request: Request, state: State) -> Request:
    """With the names of the members on the hosts that it speaks of."""
    if not request.hosts:
        return request
    names = tuple(m.name for m in state.named(state.world) if m.host in request.hosts)
    return replace(request, names=names)


def next_wish(draft: Draft) -> Request | None:
    """What to do when nothing is under way: notices first, then requests, then the wanted size."""
    state = draft.state
    if state.world is None:
        return None
    patient = draft.now < state.retry_at
    if not patient and (urgent := _notice(draft) or _early_finish(draft)):
        return urgent
    if state.queue:
        request, *rest = state.queue
        draft.set(queue=tuple(rest))
        return request
    return None if patient else _own_wish(draft)


def _own_wish(draft: Draft) -> Request | None:
    state = draft.state
    far = draft.now + state.spec.elastic_timeout
    if state.mode is Mode.RESTART and any(m.finished for m in state.members.values()):
        return None  # a restart would do again what has been done
    if state.size > state.wanted:
        return Request(None, far, to=state.wanted, origin="shrink")
    if state.size < state.wanted and (places := room(draft)):
        if _others_may_follow(state, places, draft.now):
            return None
        return Request(None, far, to=min(state.wanted, state.size + places), origin="growth")
    return None


def _others_may_follow(state: State, places: int, now: float) -> bool:
    """Hosts often come together; each restart of all for one of them alone would be a waste."""
    if state.mode is not Mode.RESTART or state.spec.dialect.max_restarts is None:
        return False
    newest = max((host.came_at for host in state.hosts.values() if host.connected), default=0.0)
    return state.size + places < state.wanted and now - newest < GATHER


def spares(state: State) -> list[MemberState]:
    """Members that were started for a change that is no more; those that are there first."""
    joiners = state.change.joiners if state.change is not None else ()
    idle = [
        m
        for m in state.members.values()
        if m.stage in (Stage.STARTING, Stage.JOINED) and m.name not in joiners
    ]
    return sorted(idle, key=lambda m: (not m.connected, m.stage is Stage.STARTING))


def room(draft: Draft) -> int:
    """How many members could join."""
    return len(hosts.free_slots(draft.state, draft.now)) + len(spares(draft.state))


def _notice(draft: Draft) -> Request | None:
    """Members that have been told to go, or whose host goes, if the rest can do without them.

    A script that does not call Midflight is restarted in any case: it is stopped while the members
    that go can still save a checkpoint.
    """
    state = draft.state
    going = [m for m in state.named(state.world) if leaving_at(m, state) is not None]
    if not going:
        return None
    left = state.size - len(going)
    if left + room(draft) < state.spec.min_np and state.mode is not Mode.RESTART:
        return None  # their end will be a failure like any other
    far = draft.now + state.spec.grace
    return Request(None, far, names=tuple(m.name for m in going), origin="notice")


def _early_finish(draft: Draft) -> Request | None:
    """Members whose scripts have ended, if all others wait for them in a collective."""
    state = draft.state
    done = [m for m in state.named(state.world) if m.finished]
    if not done or state.mode is not Mode.ELASTIC:
        return None
    others = [m for m in state.named(state.world) if not m.finished]
    blocked = all(
        m.waiting
        and draft.now - m.moved_at > max(EARLY_SECONDS, state.silence)
        and draft.now - m.heard_at <= state.silence
        for m in others
    )
    if not blocked or len(others) < state.spec.min_np:
        return None
    names = tuple(m.name for m in done)
    named = ", ".join(label(state, name) for name in names)
    draft.say(f"{named} finished before the others, which continue without it", "warning")
    return Request(None, draft.now + state.spec.grace, names=names, origin="finish")


def leaving_at(member: MemberState, state: State) -> float | None:
    host = state.hosts.get(member.host)
    host_until = host.notice_until if host is not None else None
    times = [t for t in (member.notice_until, host_until) if t is not None]
    return min(times) if times else None
