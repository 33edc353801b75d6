"""The planned change: a transaction in three stages.

STARTING: joiners come up while the others train. CONNECTING: the coming group is connected in
the background. SWITCHING: a step a little ahead is published; from it on the new world is valid.
Before that stage everything can be taken back, and nobody in training will have noticed.
"""

from collections.abc import Iterable
from dataclasses import replace

from midflight.coordinator.core import hosts, trial
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.job_end import dismiss
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.placement import launch
from midflight.coordinator.core.requests import (
    OWN_WISHES,
    leaving_at,
    objection,
    spares,
    target_of,
)
from midflight.coordinator.core.state import (
    Change,
    ChangeStage,
    Phase,
    Request,
    Stage,
    State,
)
from midflight.coordinator.core.switch_step import LEAVE_SECONDS, step_in_flight, switch_step
from midflight.protocol.messages import Abandon, Prepare, Switch
from midflight.protocol.world import World
from midflight.quantities import counted

RETRY_SECONDS = 1.0  # before a change of the job's own accord is tried again


def begin(draft: Draft, request: Request) -> None:
    """Take a request up. The job is STABLE and nothing else is under way."""
    state = draft.state
    assert state.world is not None
    if request.origin == "replace":  # some of those who are to go may have gone meanwhile
        request = replace(request, names=tuple(n for n in request.names if n in state.world))
    if problem := objection(request, state):
        draft.answer(request, False, problem)
        return
    change = _recounted(state, Change(request=request, target=target_of(request, state)))
    if not change.leavers and not change.missing:
        _adopt_target(draft, change)
        draft.answer(request, True, f"the job has {counted(state.size, 'member')} already")
        return
    draft.set(change=change)
    draft.enter(Phase.PREPARING, f"{state.size} to {counted(change.target, 'member')}")
    draft.inform(request, f"preparing {counted(change.target, 'member')}")
    proceed(draft)


def _leavers(state: State, request: Request, target: int) -> tuple[str, ...]:
    """Who leaves: those named, then the newest, as many as the target wants."""
    world = state.world.names if state.world else ()
    leavers = [name for name in request.names if name in world]
    surplus = max(0, len(world) - len(leavers) - target)
    others = [name for name in reversed(world) if name not in leavers]
    return (*leavers, *others[:surplus])


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
        idle = [member.name for member in spares(draft.state)][: change.missing]
        names = (*idle, *launch(draft, change.missing - len(idle)))
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
        draft.answer(change.request, True, f"the job has {counted(draft.state.size, 'member')}")


def _recounted(state: State, change: Change) -> Change:
    """Who still has to come and go, given the world as it is now.

    Only a request for newcomers waits for them; leaving needs no more than the minimum to stay.
    """
    request = change.request
    world = state.world.names if state.world else ()
    leavers = _leavers(state, request, change.target)
    joiners = tuple(n for n in change.joiners if n in state.members and n not in world)
    brings = request.to is not None or request.add > 0
    size = change.target if brings else state.spec.min_np
    missing = max(0, size - (len(world) - len(leavers)) - len(joiners))
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
    if len(change.ready) >= change.world.size and change.ready >= set(change.world.names):
        _switch(draft, change)


def _switch(draft: Draft, change: Change) -> None:
    """Everyone is connected: publish the step from which the new world is valid."""
    state = draft.state
    world = change.world
    assert world is not None and state.world is not None
    until = _notice_ends(state, change, draft.now)
    step = switch_step(state.named(state.world), state.best_step, draft.now, until)
    if change.request.origin == "finish":  # all have begun the one before it, and wait
        step = max(0, min(member.step for member in state.named(state.world)) - 1)
    draft.set_members(world.names, stage=Stage.ACTIVE)
    _publish(draft, replace(change, stage=ChangeStage.SWITCHING, step=step))
    draft.inform(change.request, f"switching to {counted(world.size, 'member')} at step {step}")


def _publish(draft: Draft, change: Change) -> None:
    before, world = draft.state.world, change.world
    assert before is not None and world is not None
    draft.set(change=change)
    draft.enter(
        Phase.SWITCHING, f"{before.size} to {counted(world.size, 'member')} at step {change.step}"
    )
    audience = dict.fromkeys((*before.names, *world.names))
    draft.tell(audience, Switch(world, change.joiners, change.step), durable=True)


def _hurry(draft: Draft, change: Change) -> None:
    """The step in flight takes longer than the notice of one who leaves: give it up.

    If the others have done so already, the change is complete: the end of a leaver that never came
    to a step boundary is no loss to them.
    """
    state = draft.state
    until = _notice_ends(state, change, draft.now)
    if until is None or draft.now < until - LEAVE_SECONDS:
        return
    assert change.world is not None
    if change.settled.issuperset(change.world.names):
        _complete(draft, change)
        return
    step = step_in_flight(state.named(state.world), state.best_step, draft.now)
    if step < change.step:
        draft.say(f"step {step} takes longer than the notice: it will be repeated", "warning")
        _publish(draft, replace(change, step=step))


def _notice_ends(state: State, change: Change, now: float) -> float | None:
    """When the first of those who leave will be ended; None: nobody is in a hurry.

    A notice that is over has not been enforced, so it is no longer a reason to hurry.
    """
    staying = [name for name in change.leavers if name not in change.settled]
    leavers = [state.members[name] for name in staying if name in state.members]
    times = [leaving_at(member, state) for member in leavers]
    return min((moment for moment in times if moment is not None and moment > now), default=None)


def settled(draft: Draft, name: str, generation: int) -> None:
    """A member has passed the switch. When all have, the change is done."""
    change = draft.state.change
    if change is None or change.world is None or change.world.generation != generation:
        return
    if change.stage is not ChangeStage.SWITCHING:
        return
    change = replace(change, settled=change.settled | {name})
    draft.set(change=change)
    assert change.world is not None
    if change.has_been_entered and draft.state.suspected < generation:
        draft.set(suspicion=None)  # what broke is a world that all have left
    known, settled = draft.state.members, change.settled
    everyone = (n for n in (*change.leavers, *reversed(change.world.names)) if n in known)
    if all(n in settled for n in everyone):  # ends at the first who has not; joiners are the last
        _complete(draft, change)


def _complete(draft: Draft, change: Change) -> None:
    state = draft.state
    assert change.world is not None
    before, wanted = state.size, state.wanted
    draft.set(world=change.world, change=None)
    _adopt_target(draft, change)
    leaving = [name for name in change.leavers if name in state.members]
    dismiss(draft, leaving, "the job has been made smaller")
    draft.enter(Phase.STABLE, "" if state.suspicion is None else state.detail)
    line = (
        f"resized from {before} to {counted(change.world.size, 'member')} at step {change.step} "
        f"(generation {change.world.generation})"
    )
    draft.say(line)
    remaining = _unfinished(change, draft.state)
    if remaining is not None:
        draft.set(queue=(remaining, *draft.state.queue))
        return
    if change.request.origin == "request" and change.joiners:
        trial.begin(draft, change, wanted, line)
    else:
        draft.answer(change.request, True, line)


def _adopt_target(draft: Draft, change: Change) -> None:
    """What was asked for is from now on what is wanted; what just happened is not."""
    request = change.request
    if request.origin == "request":
        draft.set(wanted=change.target)
    elif request.origin == "finish":  # nobody replaces who has done all its work
        draft.set(wanted=max(change.target, draft.state.wanted - len(request.names)))


def _unfinished(change: Change, state: State) -> Request | None:
    """After joiners were taken in first, the old ones still have to go."""
    names = tuple(n for n in change.request.names if state.world and n in state.world)
    if not names or change.leavers:
        return None
    return replace(change.request, to=None, add=0, remove=0, names=names, origin="replace")


def set_aside(draft: Draft) -> None:
    """Let go of the change that is under way; its joiners stay, the next change can use them."""
    change = draft.state.change
    assert change is not None and change.stage is not ChangeStage.SWITCHING
    if change.world is not None:
        here = [name for name in change.world.names if name in draft.state.members]
        draft.tell(here, Abandon(change.world.generation))
    draft.set(change=None)
    if draft.state.phase is Phase.PREPARING:
        draft.enter(Phase.STABLE)


def abort(draft: Draft, reason: str, blamed: Iterable[str] = ()) -> None:
    """Take everything back; those in training never noticed. Hosts of the blamed are avoided."""
    change = draft.state.change
    if change is None:
        return
    known = [draft.state.members[name] for name in blamed if name in draft.state.members]
    for host in dict.fromkeys(member.host for member in known):
        hosts.cool_down(draft, host)
    stop_all(draft, [member.name for member in known])
    wanted_by_people = change.request.origin == "request"
    if wanted_by_people and draft.state.phase is Phase.PREPARING:
        stop_all(draft, change.joiners)
    set_aside(draft)
    draft.answer(
        change.request,
        False,
        f"{reason}; the job continues with {counted(draft.state.size, 'member')}",
    )
    if wanted_by_people:
        draft.say(f"the resize was undone: {reason}", "warning")
    else:
        draft.set(retry_at=draft.now + RETRY_SECONDS)
        draft.say(f"{change.request.origin}: undone: {reason}", "debug")


def stop_all(draft: Draft, names: Iterable[str]) -> None:
    """End processes, unless others have to do with them: those are in a world by now."""
    for name in names:
        member = draft.state.members.get(name)
        if member is not None and member.stage is not Stage.ACTIVE:
            draft.stop(member)
            draft.drop_member(name)


def make_way(draft: Draft) -> None:
    """A notice cannot wait for a change that takes its time; that one comes afterwards."""
    change = draft.state.change
    if change is None or change.stage is ChangeStage.SWITCHING:
        return
    set_aside(draft)
    if change.request.origin not in OWN_WISHES:
        draft.set(queue=(change.request, *draft.state.queue))


def not_ready(draft: Draft, name: str, generation: int, reason: str) -> None:
    """A member could not prepare: nobody will switch. Newcomers are suspected first."""
    change = draft.state.change
    if change is None or change.stage is not ChangeStage.CONNECTING or change.world is None:
        return
    if change.world.generation == generation:
        blamed = [name] if name in change.joiners else change.joiners
        abort(draft, f"{label(draft.state, name)} could not prepare: {reason}", blamed)


def check_deadline(draft: Draft) -> None:
    change = draft.state.change
    if change is not None and change.stage is ChangeStage.SWITCHING:
        _hurry(draft, change)
        return
    if change is None or draft.now < change.request.deadline:
        return
    blamed: Iterable[str] = ()
    if change.missing:
        capacity = hosts.describe_capacity(draft.state, draft.now)
        why = f"no free slot for {change.missing} of the new members ({capacity})"
    elif blamed := _not_there(draft.state, change):
        why = f"{', '.join(blamed)} did not become ready in time"
    else:
        why = "the members could not be connected in time"
        blamed = change.joiners
    abort(draft, why, blamed)


def _not_there(state: State, change: Change) -> list[str]:
    joiners = [state.members[name] for name in change.joiners if name in state.members]
    return [m.name for m in joiners if m.stage is Stage.STARTING]
