"""How a job ends: all members finished, a failure that nothing can mend, or somebody's wish."""

from collections.abc import Iterable

from midflight.coordinator.core import trial
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import OVER, Phase, Stage, State
from midflight.protocol.messages import Dismiss

REMIND = 30.0  # seconds after training: then it is said who has not ended


def fail(draft: Draft, reason: str) -> None:
    """End the job with exit code 1 and one clear line."""
    if draft.state.phase in OVER:
        return
    stop(draft, reason, code=1)
    draft.say(reason, "error")


def stop(draft: Draft, reason: str, code: int) -> None:
    trial.fail(draft, reason)
    refuse_requests(draft, reason)
    _note_last_step(draft)
    draft.enter(Phase.FAILED, reason)
    draft.set(exit_code=code, change=None, forming=None)
    draft.end(code, reason)


def succeed(draft: Draft) -> None:
    trial.succeed(draft)
    refuse_requests(draft, "training finished before the change could be made")
    draft.enter(Phase.SUCCEEDED)
    draft.set(exit_code=0)
    draft.end(0, "")


def refuse_requests(draft: Draft, reason: str) -> None:
    change = draft.state.change
    if change is not None:
        draft.answer(change.request, False, reason)
    for request in draft.state.queue:
        draft.answer(request, False, reason)
    draft.set(queue=())


def dismiss_finished(draft: Draft) -> None:
    """Everybody has come to the end: let them go, and stop those who never took part."""
    trial.succeed(draft)
    refuse_requests(draft, "training finished before the change could be made")
    for member in tuple(draft.state.members.values()):
        if member.stage in (Stage.STARTING, Stage.JOINED):
            draft.stop(member)
            draft.drop_member(member.name)
    draft.set(change=None, forming=None, suspicion=None)
    _note_last_step(draft)
    draft.enter(Phase.ENDING)
    draft.set(ended_at=draft.now, remind_at=draft.now + REMIND)
    dismiss(draft, draft.state.members, "training is complete", first_left(draft.state))


def _note_last_step(draft: Draft) -> None:
    """A member's last words tell of a step for which no heartbeat came any more."""
    steps = (member.step for member in draft.state.members.values())
    draft.set(best_step=max((draft.state.best_step, *steps)))


def first_left(state: State) -> str:
    """After training: the first member of the last world that is still there."""
    left = state.named(state.world) if state.phase is Phase.ENDING else []
    return left[0].name if left else ""


def dismiss(draft: Draft, names: Iterable[str], reason: str, first: str = "") -> None:
    """Let members go. Durable: whoever finds them gone must know that they were free to go."""
    names = tuple(names)
    draft.set_members(names, stage=Stage.LEAVING, moved_at=draft.now)
    draft.tell(names, Dismiss(reason, False, first), durable=True)
