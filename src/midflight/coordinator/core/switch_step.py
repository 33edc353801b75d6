"""From which step on a planned change is valid."""

import math
from collections.abc import Iterable

from midflight.coordinator.core.state import MemberState

MARGIN = 1  # steps between the furthest member and the switch
NEWS_SECONDS = 0.03  # how long the news may take to reach everybody


def switch_step(members: Iterable[MemberState], best: int, now: float) -> int:
    """A step that nobody will have begun, or asked data for, when the news arrives."""
    members = tuple(members)
    rate = max((m.rate for m in members), default=0.0)
    furthest = max((m.step + m.rate * (now - m.heard_at) for m in members), default=0.0)
    asked = max((m.horizon for m in members), default=0)
    reached = max(int(furthest), best, asked)
    return reached + MARGIN + math.ceil(rate * NEWS_SECONDS)
