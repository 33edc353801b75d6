"""The planned change: a transaction in three stages.

STARTING: joiners come up while the others train. CONNECTING: the coming group is connected in
the background. SWITCHING: a step a little ahead is published; from it on the new world is valid.
Before that stage everything can be taken back, and nobody in training will have noticed.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from midflight.coordinator.core import hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.placing import launch
from midflight.coordinator.core.state import (
    Change,
    ChangeStage,
    MemberState,
    Phase,
    Request,
    Stage,
    State,
)
from midflight.protocol.messages import Abandon, Dismiss, Prepare, Switch
from midflight.protocol.world import World

MARGIN = 1  # steps between the furthest member and the switch
NEWS_SECONDS = 0.03  # how long the news may take to reach everybody


def target_of(request: Request, state: State) -> int:
    if request.to is not None:
        return request.to
    if request.origin == "notice":
        return max(state.size - len(request.names), state.spec.min_np)
    if request.origin != "request":
        return state.size - len(request.names)
    return state.wanted + request.add - request.remove - len(request.names)


def objection(request: Request, state: State) -> str | None:
    """Why a request cannot be accepted, or None."""
    known = set(state.world.names) if state.world else set()
    for name in request.names:
        if name not in known:
            return (
                f"no member is named {name!r}; there are {', '.join(sorted(known)) or 'none yet'}"
            )
    target = target_of(request, state)
    if target > state.spec.max_np:
        return f"{target} members are more than --max-np {state.spec.max_np}"
    if target < state.spec.min_np:
        return f"{target} members are fewer than --min-np {state.spec.min_np}"
    return None


def begin(draft: Draft, request: Request) -> None:
    """Take a request up. The job is STABLE and nothing else is under way."""
    state = draft.state
    if problem := objection(request, state):
        draft.answer(request, False, problem)
        return
    target = target_of(request, state)
    leavers = _leavers(state, request, target)
    if target == state.size and not leavers:
        draft.set(wanted=target)
        draft.answer(request, True, f"the job has {target} members already")
        return
    change = Change(request=request, target=target, leavers=leavers)
    draft.set(change=change)
    draft.enter(Phase.PREPARING, f"{state.size} to {target} members")
    draft.inform(request, f"preparing {target} members")
    proceed(draft)


def _leavers(state: State, request: Request, target: int) -> tuple[str, ...]:
    """Who leaves: those named, then the newest, as many as the target wants."""
    assert state.world is not None
    leavers = list(request.names)
    surplus = state.size - len(leavers) - target
    if surplus > 0:
        others = [name for name in reversed(state.world.names) if name not in leavers]
        leavers += others[:surplus]
    return tuple(leavers)


def proceed(draft: Draft) -> None:
    """Take the change that is under way as far as it can go now."""
    change = draft.state.change
    if change is None or draft.state.phase not in (Phase.STABLE, Phase.PREPARING):
        return
    draft.enter(Phase.PREPARING, draft.state.detail)
    if change.stage is ChangeStage.STARTING:
        _start_joiners(draft, change)


def _start_joiners(draft: Draft, change: Change) -> None:
    change = _recounted(draft.state, change)
    if change.missing:
        spare = [
            m.name
            for m in draft.state.members.values()
            if m.stage is Stage.JOINED and m.connected and m.name not in change.joiners
        ][: change.missing]
        names = (*spare, *launch(draft, change.missing - len(spare)))
        change = replace(
            change, joiners=change.joiners + names, missing=change.missing - len(names)
        )
    draft.set(change=change)
    here = [draft.state.members[name] for name in change.joiners]
    if change.missing or not all(m.connected and m.stage is Stage.JOINED for m in here):
        return
    if here or change.leavers:
        _connect(draft, change)
    else:  # a failure on the way has brought the world to where it was to go
        draft.set(change=None)
        draft.enter(Phase.STABLE)
        _adopt_target(draft, change)
        draft.answer(change.request, True, f"the job has {draft.state.size} members")


def _recounted(state: State, change: Change) -> Change:
    """Who still has to come and go, given the world as it is now."""
    world = state.world.names if state.world else ()
    leavers = tuple(name for name in change.leavers if name in world)
    joiners = tuple(n for n in change.joiners if n in state.members and n not in world)
    missing = max(0, change.target - (len(world) - len(leavers)) - len(joiners))
    return replace(change, leavers=leavers, joiners=joiners, missing=missing)


def _connect(draft: Draft, change: Change) -> None:
    """All joiners have built their models: connect the coming group in the background."""
    state = draft.state
    assert state.world is not None
    continuing = [m for m in state.named(state.world) if m.name not in change.leavers]
    joiners = [state.members[name] for name in change.joiners]
    if not continuing and change.leavers:
        # Nobody would be left to hand the state over: take the joiners in first.
        continuing = state.named(state.world)
        change = replace(change, leavers=())
    members = tuple(m.member for m in (*continuing, *joiners))
    world = World(state.generation + 1, members)
    draft.set(
        generation=world.generation,
        change=replace(change, stage=ChangeStage.CONNECTING, world=world, ready=frozenset()),
    )
    draft.tell(world.names, Prepare(world, change.joiners), durable=True)


def ready(draft: Draft, name: str, generation: int) -> None:
    """A member has connected the coming group; when all have, the step can be published."""
    change = draft.state.change
    if change is None or change.world is None or change.world.generation != generation:
        return
    if change.stage is not ChangeStage.CONNECTING:
        return
    change = replace(change, ready=change.ready | {name})
    draft.set(change=change)
    assert change.world is not None
    if change.ready >= set(change.world.names):
        _switch(draft, change)


def _switch(draft: Draft, change: Change) -> None:
    """Everyone is connected: publish the step from which the new world is valid."""
    state = draft.state
    world = change.world
    assert world is not None and state.world is not None
    step = switch_step(state.named(state.world), state.best_step, draft.now)
    draft.set(change=replace(change, stage=ChangeStage.SWITCHING, step=step))
    draft.enter(Phase.SWITCHING, f"{state.size} to {world.size} members at step {step}")
    audience = dict.fromkeys((*state.world.names, *world.names))
    draft.tell(audience, Switch(world, change.joiners, step), durable=True)
    draft.inform(change.request, f"switching to {world.size} members at step {step}")


def switch_step(members: Iterable[MemberState], best: int, now: float) -> int:
    """A step that nobody will have begun, or asked data for, when the news arrives."""
    members = tuple(members)
    rate = max((m.rate for m in members), default=0.0)
    furthest = max((m.step + m.rate * (now - m.heard_at) for m in members), default=0.0)
    asked = max((m.horizon for m in members), default=0)
    reached = max(int(furthest), best, asked)
    return reached + MARGIN + math.ceil(rate * NEWS_SECONDS)


def settled(draft: Draft, name: str, generation: int, step: int) -> None:
    """A member has passed the switch. When all have, the change is done."""
    change = draft.state.change
    if change is None or change.world is None or change.world.generation != generation:
        return
    draft.set_member(name, holds_state=True, step=step, moved_at=draft.now)
    change = replace(change, settled=change.settled | {name})
    draft.set(change=change)
    assert change.world is not None
    everyone = {n for n in (*change.world.names, *change.leavers) if n in draft.state.members}
    if change.settled >= everyone:
        _complete(draft, change)


def _complete(draft: Draft, change: Change) -> None:
    state = draft.state
    assert change.world is not None
    before = state.size
    draft.set(world=change.world, change=None)
    _adopt_target(draft, change)
    draft.set_members(change.world.names, stage=Stage.ACTIVE)
    leaving = [name for name in change.leavers if name in state.members]
    draft.set_members(leaving, stage=Stage.LEAVING)
    draft.tell(leaving, Dismiss("the job has been made smaller", failed=False))
    draft.enter(Phase.STABLE)
    line = (
        f"resized from {before} to {change.world.size} members at step {change.step} "
        f"(generation {change.world.generation})"
    )
    draft.say(line)
    remaining = _unfinished(change, draft.state)
    if remaining is not None:
        draft.set(queue=(remaining, *draft.state.queue))
        return
    draft.answer(change.request, True, line)


def _adopt_target(draft: Draft, change: Change) -> None:
    """What was asked for is from now on what is wanted; what just happened is not."""
    if change.request.origin == "request":
        draft.set(wanted=change.target)


def _unfinished(change: Change, state: State) -> Request | None:
    """After joiners were taken in first, the old ones still have to go."""
    names = tuple(n for n in change.request.names if state.world and n in state.world)
    if not names or change.leavers:
        return None
    return replace(change.request, to=None, add=0, remove=0, names=names, origin="replace")


def abort(draft: Draft, reason: str) -> None:
    """Take everything back; those in training never noticed."""
    change = draft.state.change
    if change is None:
        return
    if change.world is not None:
        names = [n for n in change.world.names if n not in change.joiners]
        draft.tell(names, Abandon(change.world.generation))
    for name in change.joiners:
        if member := draft.state.members.get(name):
            draft.stop(member)
            draft.drop_member(name)
    draft.set(change=None)
    draft.enter(Phase.STABLE)
    draft.answer(
        change.request, False, f"{reason}; the job goes on with {draft.state.size} members"
    )
    if change.request.origin == "request":
        draft.say(f"the resize was taken back: {reason}", "warning")
    else:
        draft.say(f"{change.request.origin}: taken back: {reason}", "debug")


def check_deadline(draft: Draft) -> None:
    change = draft.state.change
    if change is None or change.stage is ChangeStage.SWITCHING:
        return
    if draft.now < change.request.deadline:
        return
    late = [
        name
        for name in change.joiners
        if name in draft.state.members and draft.state.members[name].stage is Stage.STARTING
    ]
    if change.missing:
        why = (
            f"no free slot for {change.missing} of the new members "
            f"({hosts.describe_capacity(draft.state, draft.now)})"
        )
    elif late:
        why = f"{', '.join(late)} did not become ready in time"
        for host in dict.fromkeys(draft.state.members[name].host for name in late):
            hosts.cool_down(draft, host)
    else:
        why = "the members could not be connected in time"
    abort(draft, why)


def next_wish(draft: Draft) -> Request | None:
    """What to do when nothing is under way: notices first, then requests, then the wanted size."""
    state = draft.state
    if state.world is None:
        return None
    if notice := _notice(draft):
        return notice
    if state.queue:
        request, *rest = state.queue
        draft.set(queue=tuple(rest))
        return request
    far = draft.now + state.spec.elastic_timeout
    if state.size > state.wanted:
        return Request(None, far, to=state.wanted, origin="shrink")
    room = _room(draft)
    if state.size < state.wanted and room:
        return Request(None, far, to=min(state.wanted, state.size + room), origin="growth")
    return None


def _room(draft: Draft) -> int:
    spare = sum(m.stage is Stage.JOINED and m.connected for m in draft.state.members.values())
    return len(hosts.free_slots(draft.state, draft.now)) + spare


def _notice(draft: Draft) -> Request | None:
    """Members that have been told to go, or whose host goes, if the rest can do without them."""
    state = draft.state
    going = [m for m in state.named(state.world) if leaving_at(m, state) is not None]
    if not going:
        return None
    left = state.size - len(going)
    deadline = min(leaving_at(m, state) or 0.0 for m in going)
    if draft.now >= deadline or left + _room(draft) < max(1, state.spec.min_np):
        return None  # their end will be a failure like any other
    return Request(None, deadline, names=tuple(m.name for m in going), origin="notice")


def leaving_at(member: MemberState, state: State) -> float | None:
    host = state.hosts.get(member.host)
    host_until = host.notice_until if host is not None else None
    times = [t for t in (member.notice_until, host_until) if t is not None]
    return min(times) if times else None
