"""Scripts that never call Midflight: every change stops all processes and starts them again.

They get the environment that torchrun sets, so ranks are given at birth. The first failure is
given a moment to show whether all of them fail (then the job has failed) before the rest is
stopped; if one was killed, the others may fail because of that, and all are restarted. Under
torchrun's rules only the number of failures counts, whoever fails: the job has failed when there
were more than --max-restarts. A host that comes or goes is no failure.
"""

from midflight.coordinator.core import hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.job_end import fail, succeed
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.placement import launch
from midflight.coordinator.core.requests import objection, target_of
from midflight.coordinator.core.state import MemberState, Phase, Request, Stage
from midflight.protocol.world import World
from midflight.quantities import counted

PATIENCE = 0.5  # seconds in which the others may fail by themselves
STOP_GRACE = 2.0
MONITOR = 0.1  # the same moment under torchrun's rules; its --monitor-interval
QUICK_FAILURES = 3  # failures in a row, each soon after the start, before the job has failed


def exited(draft: Draft, name: str, code: int, reason: str, *, blameless: bool = False) -> None:
    member = draft.state.members[name]
    if code == 0 and draft.state.phase is not Phase.RESTARTING:
        draft.set_member(name, finished=True, stage=Stage.LEAVING)
        if _all_finished(draft) and draft.state.suspicion is None:
            succeed(draft)
        return
    named = label(draft.state, name)
    draft.drop_member(name)
    if draft.state.phase is Phase.RESTARTING:
        _relaunch(draft)
        return
    if code < 0 or not draft.state.blameless:  # else its collective broke with one that was killed
        hosts.cool_down(draft, member.host)
    draft.say(f"lost {named}: {reason}", "warning")
    if draft.state.spec.dialect.max_restarts is not None:
        _suspect(draft, f"{named}: {reason}", MONITOR, blameless)
    elif not draft.state.members and code > 0 and not draft.state.blameless:
        fail(draft, f"all members failed; the last: {named}: {reason}")
    elif draft.state.members and _all_finished(draft):
        fail(draft, f"{named} failed, after the others had finished: {reason}")
    else:
        _suspect(draft, f"{named}: {reason}", PATIENCE, blameless=code < 0)


def _all_finished(draft: Draft) -> bool:
    return all(member.finished for member in draft.state.members.values())


def _suspect(draft: Draft, detail: str, patience: float, blameless: bool) -> None:
    """The first to fail says why; one who was killed, or lost, excuses all who fail with it."""
    if draft.state.suspicion is None:
        draft.set(suspicion=draft.now + patience, detail=detail, blameless=blameless)
    elif blameless:
        draft.set(blameless=True)


def check(draft: Draft) -> None:
    """On a tick: a failure that the others did not share makes everybody start again."""
    suspicion = draft.state.suspicion
    if suspicion is None or draft.now < suspicion:
        if draft.state.phase is Phase.RESTARTING and not draft.state.members:
            _relaunch(draft)
        return
    if any(_has_hung_up(draft, member) for member in draft.state.members.values()):
        return  # whether its host is lost, which would excuse the others, is known soon
    most = draft.state.spec.dialect.max_restarts
    draft.set(resets=draft.state.resets + (most is None or not draft.state.blameless))
    if most is not None:
        _restart_or_fail(draft, most)
        return
    if draft.state.members and _all_finished(draft):
        fail(draft, f"a member failed, and the others have finished: {draft.state.detail}")
        return
    launched = draft.state.launched_at or draft.now
    quick = draft.now - launched < draft.state.spec.start_timeout
    draft.set(stalls=draft.state.stalls + 1 if quick else 1)
    limit = draft.state.spec.reset_limit
    if limit is not None and draft.state.resets > limit:
        fail(draft, f"the job was reset more often than --reset-limit {limit} allows")
    elif draft.state.stalls >= QUICK_FAILURES:
        fail(draft, f"{QUICK_FAILURES} failures in a row; the last: {draft.state.detail}")
    else:
        restart(draft)


def _has_hung_up(draft: Draft, member: MemberState) -> bool:
    host = draft.state.hosts[member.host]
    may_come = host.awaited and draft.now >= draft.state.lenient_until  # at last
    return not host.connected and not may_come


def _restart_or_fail(draft: Draft, limit: int) -> None:
    if draft.state.resets > limit:
        detail = draft.state.detail
        often = "" if limit == 0 else f" (--max-restarts {limit} is used up)"
        fail(draft, f"a worker failed: {detail}{often}")
    else:
        restart(draft)


def resize(draft: Draft, request: Request) -> None:
    state = draft.state
    problem = objection(request, state)
    target = target_of(request, state)
    if problem is None and any(member.finished for member in state.members.values()):
        problem = "some members have finished already"
    room = hosts.room_for_all(state, draft.now)
    if problem is None and target > room and request.origin != "notice":
        capacity = hosts.describe_capacity(state, draft.now)
        problem = f"no room for {counted(target, 'member')} ({capacity})"
    if problem is not None:
        draft.answer(request, False, problem)
        return
    if request.origin == "request":
        draft.set(wanted=target)
    if target == state.size and not request.names and state.suspicion is None:
        draft.answer(request, True, f"the job has {counted(target, 'member')} already")
        return
    draft.answer(
        request, True, f"restarting with {counted(target, 'member')}: the script has no Midflight"
    )
    restart(draft)


def restart(draft: Draft) -> None:
    draft.set(suspicion=None, blameless=False)
    draft.enter(Phase.RESTARTING)
    for member in tuple(draft.state.members.values()):
        if member.finished:  # its process is gone already
            draft.drop_member(member.name)
        else:
            # Not before the store knows: a coordinator that takes over would see them fail.
            draft.stop(member, STOP_GRACE, durable=True)
    _relaunch(draft)


def _relaunch(draft: Draft) -> None:
    """Once all are gone: start as many as are wanted and fit."""
    state = draft.state
    if state.members:
        return
    room = len(hosts.free_slots(state, draft.now))
    count = min(state.wanted, room)
    if count < state.spec.min_np:
        since = draft.now if state.waiting_since is None else state.waiting_since
        draft.set(waiting_since=since)
        deadline = since + state.spec.elastic_timeout
        if draft.now >= deadline or hosts.all_cool_until(state, deadline):
            capacity = hosts.describe_capacity(state, draft.now)
            fail(draft, f"{counted(state.spec.min_np, 'member')} needed, {room} fit ({capacity})")
        return
    names = launch(draft, count, ranked=True)
    world = World(state.generation + 1, tuple(draft.state.members[n].member for n in names))
    draft.set(generation=world.generation, world=world, waiting_since=None, launched_at=draft.now)
    draft.set_members(names, stage=Stage.ACTIVE)
    draft.enter(Phase.STABLE, "the script does not call Midflight: it is restarted at each change")
    draft.say(f"restarted with {counted(count, 'member')} (generation {world.generation})")
