"""Whether training has gone on after a strike, and after how long: pure, from what is observed.

The steps that a coordinator tells are as old as the last heartbeats. So a step counts only once the
strike has had its effect (a killed member is out of the world, a passing fault is over) and steps
go on beyond what may have been on its way then.
"""

from dataclasses import dataclass, replace

from midflight.chaos.choice import KILL, OVER, STOP, TRAINS, Seen, Strike
from midflight.deadlines import MEMBER_BEAT

SETTLE = 3 * MEMBER_BEAT


@dataclass(frozen=True)
class Recovery:
    strike: Strike
    began: float
    effective: tuple[float, int] | None = None  # since when, and the step then
    settled: int | None = None  # the step a little later
    moved: float | None = None  # when the first step after the effect was seen
    complete: bool = False  # training goes on, or has ended well
    failed: bool = False  # the training has ended badly

    @property
    def seconds(self) -> float | None:
        """From the strike to the first step; None if there was none."""
        return None if self.moved is None else self.moved - self.began

    def observe(self, now: float, seen: Seen, *, striking: bool) -> "Recovery":
        """`striking`: a fault that passes has not passed yet."""
        if seen.phase in OVER:
            failed = seen.phase == "failed"
            return replace(self, failed=failed, complete=not failed, moved=self.moved or now)
        if seen.phase not in TRAINS:
            return self
        if self.effective is None:
            if not self._has_effect(seen, striking):
                return self
            return replace(self, effective=(now, seen.step))
        since, step = self.effective
        after = self
        if after.moved is None and seen.step > step:
            after = replace(after, moved=now)
        if after.settled is None:
            return replace(after, settled=seen.step) if now - since >= SETTLE else after
        return replace(after, complete=seen.step > after.settled)

    def _has_effect(self, seen: Seen, striking: bool) -> bool:
        target = next((m for m in seen.members if m.name == self.strike.target), None)
        out = target is None or not target.holds
        if self.strike.action == KILL:
            return out
        return not striking or (self.strike.action == STOP and out)
