"""From which step on a planned change is valid.

Late enough that the news reaches everybody before they begin it, and, as far as that costs little
time, beyond the data that was prefetched for the old world; members drop the rest of it. A member
that was given notice must be gone in time: if not even the step in flight will end by then, the
change is valid from that step on, and the others repeat it.
"""

import math
from collections.abc import Sequence

from midflight.coordinator.core.state import MemberState

MARGIN = 1  # steps between the furthest member and the switch
NEWS_SECONDS = 0.03  # how long the news may take to reach everybody
RARELY_LATE = 0.05  # share of a step; whoever begins it in such a moment repeats that moment only
PREFETCH_SECONDS = 5.0  # a change waits so long at most to use up what was prefetched
LEAVE_SECONDS = 2.0  # what a member needs after the switch until its process has ended


def switch_step(
    members: Sequence[MemberState], best: int, now: float, until: float | None = None
) -> int:
    """`best`: the furthest step known; `until`: when a member that leaves will be ended."""
    reached = step_in_flight(members, best, now)
    missed = max((m.rate for m in members), default=0.0) * NEWS_SECONDS
    soonest = reached + MARGIN + (math.ceil(missed) if missed > RARELY_LATE else 0)
    patience = PREFETCH_SECONDS
    rate = _pace(members, now)
    if until is not None:
        left = until - LEAVE_SECONDS - now
        if rate and _seconds_left(members, now) + (soonest - reached - 1) / rate > left:
            return reached
        patience = min(patience, left / 4)
    unloaded = max((m.horizon for m in members), default=0) + MARGIN
    return max(soonest, min(unloaded, soonest + int(rate * patience)))


def step_in_flight(members: Sequence[MemberState], best: int, now: float) -> int:
    """The step that the furthest member is in by now.

    Steps are synchronous: nobody is more than one ahead of the member that was heard last.
    """

    def reach(member: MemberState) -> float:
        return member.step + member.rate * (now - member.heard_at)

    heard = [m for m in members if m.connected]
    limit = reach(max(heard, key=lambda m: m.heard_at)) + 1 if heard else math.inf
    return max((best, *(int(max(m.step, min(reach(m), limit))) for m in members)))


def _pace(members: Sequence[MemberState], now: float) -> float:
    """Steps per second of the world, 0.0 if nobody knows; a step that takes longer counts."""
    rates = [
        m.rate if m.stepped_at is None else min(m.rate, 1 / max(now - m.stepped_at, 1e-6))
        for m in members
        if m.rate > 0
    ]
    return min(rates, default=0.0)


def _seconds_left(members: Sequence[MemberState], now: float) -> float:
    """How long the step in flight will still take, if it takes as long as the last ones."""
    known = [m for m in members if m.rate > 0]
    ends = [(now if m.stepped_at is None else m.stepped_at) + 1 / m.rate for m in known]
    return max(0.0, max(ends, default=now) - now)
