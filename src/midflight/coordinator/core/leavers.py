"""Members that were let go, until their processes have ended.

Whoever leaves while its script is still in training has the grace, and is killed after it; that
fails nothing as long as the others train. Whoever has finished training may run the rest of its
script for as long as that takes: its host is asked now and then what the process is doing, and it
is ended if it is stopped. Nobody waits in silence: after training a line says for whom.
"""

from heapq import nsmallest
from itertools import islice

from midflight.coordinator.core.departures import KILLED, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.state import MemberState, Phase, Stage, State

LOOK_AGAIN = 5.0  # seconds between two looks at a process that takes its time
LOOKS_AT_ONCE = 50  # at one tick; in a large world each process is looked at less often
NAMED = 3  # of those for whom the end of the job waits


def watch(draft: Draft) -> None:
    """End whoever does not leave, and look at those who have finished and take their time."""
    late = [member for member in draft.state.members.values() if is_late(draft, member)]
    grace = draft.state.spec.grace
    for member in late:
        if not member.finished:
            draft.stop(member)
            gone(draft, [member.name], KILLED, f"it did not end within {grace:g} s")
    unheard = [member for member in late if member.finished and _can_be_looked_at(draft, member)]
    for member in nsmallest(LOOKS_AT_ONCE, unheard, key=lambda m: m.probed_at or 0.0):
        draft.set_member(member.name, probed_at=draft.now)
        draft.probe(member)


def is_late(draft: Draft, member: MemberState) -> bool:
    """Whether it was let go longer ago than the grace."""
    return member.stage is Stage.LEAVING and draft.now - member.moved_at > draft.state.spec.grace


def _can_be_looked_at(draft: Draft, member: MemberState) -> bool:
    state = draft.state
    if member.connected and draft.now - member.heard_at <= state.silence:
        return False  # its heartbeats say that it runs
    again = member.probed_at is None or draft.now - member.probed_at > LOOK_AGAIN
    return again and state.hosts[member.host].connected


def say_who_is_left(draft: Draft) -> None:
    """After training: a job that does not end waits for somebody. Said ever more seldom."""
    state = draft.state
    if state.phase is not Phase.ENDING or state.ended_at is None or draft.now < state.remind_at:
        return
    waited = draft.now - state.ended_at
    has = "which has" if len(state.members) == 1 else "which have"
    line = f"waiting for {_names(state)}, {has} not ended since training did {waited:.0f} s ago"
    draft.say(line)
    draft.set(detail=line, remind_at=draft.now + waited)


def _names(state: State) -> str:
    """A few of them."""
    names = [label(state, name) for name in islice(state.members, NAMED)]
    if more := len(state.members) - len(names):
        names.append(f"{more} more")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
