"""How a job ends: all members finished, a failure that nothing can mend, or somebody's wish."""

from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import OVER, Change, Phase, Stage
from midflight.protocol.messages import Dismiss


def fail(draft: Draft, reason: str) -> None:
    """End the job with exit code 1 and one clear line."""
    if draft.state.phase in OVER:
        return
    stop(draft, reason, code=1)
    draft.say(reason, "error")


def stop(draft: Draft, reason: str, code: int) -> None:
    refuse_requests(draft, reason)
    draft.enter(Phase.FAILED, reason)
    draft.set(exit_code=code, change=None, forming=None)
    draft.end(code, reason)


def succeed(draft: Draft) -> None:
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
    """Everybody has come to the end: let them go."""
    change: Change | None = draft.state.change
    refuse_requests(draft, "training finished before the change could be made")
    if change is not None:
        for name in change.joiners:
            if name in draft.state.members:
                draft.stop(draft.state.members[name])
                draft.drop_member(name)
    draft.set(change=None)
    draft.enter(Phase.ENDING)
    names = tuple(draft.state.members)
    draft.set_members(names, stage=Stage.LEAVING)
    draft.tell(names, Dismiss("training is complete", failed=False))
