"""Processes that are gone, or as good as gone: what that means depends on what they were doing.

Every way in which this becomes known (the agent reaps a child, a probe, a lost host, a hang) ends
here, with all those that were lost together, so that one failure is mended once.
"""

import signal
from collections.abc import Iterable

from midflight.coordinator.core import (
    formation,
    hosts,
    job_end,
    resize,
    restarts,
    startup,
    trial,
)
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.labels import label, place
from midflight.coordinator.core.state import (
    OVER,
    ChangeStage,
    MemberState,
    Mode,
    Phase,
    Stage,
    State,
    ended,
)

KILLED = -int(signal.SIGKILL)
_JUST_BEFORE = 2.0  # seconds in which one member ends of another's end


def gone(
    draft: Draft, names: Iterable[str], code: int, reason: str, *, blameless: bool = False
) -> None:
    """These members will not come back. `blameless`: because their host is lost.

    torchrun counts failures, but no change of the membership; Midflight's own limit counts both.
    """
    blameless = blameless and draft.state.spec.dialect.max_restarts is not None
    known = [draft.state.members[name] for name in names if name in draft.state.members]
    lost = [member for member in known if code == 0 or not _has_ended(draft.state, member)]
    if not lost:
        return
    told_to = draft.state.phase in (*OVER, Phase.RESTARTING)
    if draft.state.spec.dialect.fixed_size and code != 0 and not told_to:
        culprit = cause(draft.state, lost[0], draft.now)
        code = code if culprit is lost[0] else KILLED
        draft.set(first_failure=draft.state.first_failure or ended(draft.state, culprit, code))
        named = label(draft.state, culprit.name)
        job_end.fail(draft, f"{named} failed, and the job is of fixed size: {reason}")
        return
    if draft.state.mode is not Mode.ELASTIC and draft.state.phase not in OVER:
        _gone_without_midflight(draft, lost, code, reason, blameless)
        return
    leaving = [m for m in lost if m.stage is Stage.LEAVING or draft.state.phase in OVER]
    for member in leaving:
        _left(draft, member, code, reason)
    early = [m for m in lost if m not in leaving and _was_to_join(draft, m)]
    if early:
        _end_early(draft, early, reason)
    rest = [m for m in lost if m not in leaving and m not in early]
    if draft.state.phase is Phase.STARTING and draft.state.forming is None:
        for member in rest:
            _start_failed(draft, member, code, reason)
    elif rest:
        trial.undo(draft, rest, code, reason)
        formation.lose(draft, [m.name for m in rest], reason, cool=code != 0, counted=not blameless)


def cause(state: State, member: MemberState, now: float) -> MemberState:
    """Who hung up first: this member, or another just before, and this one ended of that."""
    hung_up = [
        m
        for m in state.members.values()
        if m.joined and not (m.connected or m.finished) and now - m.heard_at < _JUST_BEFORE
    ]
    return min([member, *hung_up], key=lambda m: now if m.connected else m.heard_at)


def found_gone(draft: Draft, member: MemberState, *, blameless: bool) -> None:
    """Its host has no such process, and nobody has said how it ended."""
    let_go = member.finished or member.stage is Stage.LEAVING
    if not let_go:  # its agent will say how it ended, once all its threads have
        end = ended(draft.state, member, KILLED)
        draft.set(vanished={**draft.state.vanished, member.name: end})
    known = let_go and draft.state.phase is not Phase.ENDING  # there the exit code counts
    code = 0 if known else KILLED
    gone(draft, [member.name], code, "its process is gone", blameless=blameless)


def _has_ended(state: State, member: MemberState) -> bool:
    """With 0, as is known: what happens to its host afterwards does not matter."""
    return state.mode is Mode.RESTART and member.finished


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _gone_without_midflight(
    draft: Draft, lost: list[MemberState], code: int, reason: str, blameless: bool
) -> None:
    if draft.state.mode is Mode.UNKNOWN:
        startup.settle_for_restarts(draft)
    for member in lost:
        if draft.state.phase not in OVER:
            restarts.exited(draft, member.name, code, reason, blameless=blameless)


def _was_to_join(draft: Draft, member: MemberState) -> bool:
    change = draft.state.change
    if change is None or change.stage is ChangeStage.SWITCHING:
        return False
    return member.name in change.joiners and member.stage is not Stage.ACTIVE


def _end_early(draft: Draft, lost: list[MemberState], reason: str) -> None:
    first = place(draft.state, lost[0].name)
    for member in lost:
        draft.stop(member)
        draft.drop_member(member.name)
    hosts.blame(draft, lost)
    resize.abort(draft, f"{first} ended before it was ready: {reason}")


def _left(draft: Draft, member: MemberState, code: int, reason: str) -> None:
    named = label(draft.state, member.name)
    draft.drop_member(member.name)
    if draft.state.phase is not Phase.ENDING:
        return
    world = draft.state.world
    stayed = world is not None and member.name in world.names  # not let go by a change before
    if code != 0 and stayed and draft.state.exit_code is None:
        draft.set(exit_code=1, first_error=f"{named} failed after training: {reason}")
    if not draft.state.members:
        if draft.state.exit_code:
            job_end.stop(draft, draft.state.first_error, 1)
            draft.say(draft.state.first_error, "error")
        else:
            job_end.succeed(draft)


def _start_failed(draft: Draft, member: MemberState, code: int, reason: str) -> None:
    """Before the first world: others may still make it. A script that fails fails everywhere."""
    named = place(draft.state, member.name)
    draft.stop(member)
    draft.drop_member(member.name)
    hosts.cool_down(draft, member.host)
    draft.say(f"{named} ended before training began: {reason}", "warning")
    if not draft.state.members and code > 0:
        job_end.fail(draft, f"all members ended before training began; the last: {reason}")
