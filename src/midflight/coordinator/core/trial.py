"""A larger world is on trial until it has completed a step; only then is its request answered.

A newcomer that is lost before that, or a script that raises, is the answer's reason, and the size
that was wanted before is wanted again. There is no deadline: like the switch, a step takes as long
as it takes.
"""

from collections.abc import Sequence
from dataclasses import replace

from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.state import Change, MemberState, Trial


def begin(draft: Draft, change: Change, wanted: int, line: str) -> None:
    """The members are in the world of this change. `wanted`: the size before it."""
    succeed(draft)  # an older one, which this change has overtaken
    # If all hear of a switch too late, they do its step in the world before, and enter after it.
    entered = (member.step for member in draft.state.named(draft.state.world))
    step = max((change.step, *entered))
    draft.set(trial=Trial(change.request, step, change.joiners, wanted, line))


def look(draft: Draft) -> None:
    """A step beyond the switch is one of the new world: all of its members have done it."""
    trial = draft.state.trial
    if trial is None or draft.state.forming is not None:
        return
    steps = (member.step for member in draft.state.named(draft.state.world))
    if max(steps, default=0) > trial.step:
        succeed(draft)


def succeed(draft: Draft) -> None:
    trial = draft.state.trial
    if trial is not None:
        draft.set(trial=None)
        draft.answer(trial.request, True, trial.line)


def fail(draft: Draft, reason: str) -> None:
    trial = draft.state.trial
    if trial is not None:
        draft.set(trial=None)
        draft.answer(trial.request, False, reason)


def undo(draft: Draft, lost: Sequence[MemberState], code: int, reason: str) -> None:
    """These members are lost: if that is the change's doing, its other newcomers go as well.

    They go only if somebody else has the state.
    """
    state, trial = draft.state, draft.state.trial
    if trial is None:
        return
    guilty = [m for m in lost if m.name in trial.joiners or m.error or code > 0]
    if not guilty:
        return
    fail(draft, f"{label(state, guilty[0].name)}: {reason}; the resize was undone")
    draft.set(wanted=trial.wanted)
    gone = {member.name for member in lost}
    rest = [member for member in state.named(state.world) if member.name not in gone]
    if not any(member.can_give for member in rest if member.name not in trial.joiners):
        return
    for member in rest:
        if member.name in trial.joiners:
            draft.stop(member)
            draft.drop_member(member.name)


def known(draft: Draft, id: str, ticket: int | None) -> bool:
    """Whether the client that asks again has asked for the change on trial."""
    trial = draft.state.trial
    if trial is None or trial.request.id != id:
        return False
    request = replace(trial.request, ticket=ticket)
    draft.set(trial=replace(trial, request=request))
    draft.inform(request, f"{trial.line}; waiting for its first step")
    return True
