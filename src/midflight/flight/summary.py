"""A run in a few lines: what was done, what the changes cost, and where the time went.

Goodput is the share of the time that went into steps that count. The rest went into the start
(until the first world), the pauses of the changes, and the end (after the last step).
"""

from dataclasses import dataclass

from midflight.flight.amounts import clock, seconds, short
from midflight.flight.plan import Change, Plan
from midflight.quantities import counted


@dataclass(frozen=True)
class Spent:
    """Seconds."""

    start: float
    pauses: float
    end: float
    total: float

    @property
    def goodput(self) -> float:
        steps = self.total - self.start - self.pauses - self.end
        return max(0.0, steps) / self.total if self.total > 0 else 0.0


def spent(plan: Plan) -> Spent:
    total = plan.end - plan.begin
    if not plan.changes or plan.last is None:
        return Spent(total, 0.0, 0.0, total)
    return Spent(
        start=plan.changes[0].t - plan.begin,
        pauses=sum(change.pause.seconds for change in plan.changes if change.pause is not None),
        end=max(0.0, plan.end - plan.last.t),
        total=total,
    )


def lines(plan: Plan) -> list[str]:
    """For a terminal; nothing if there was no step."""
    if plan.last is None:
        return []
    went = spent(plan)
    return [
        done(plan, went),
        f"goodput {goodput(went)}",
        *by_cause(plan.changes[1:]),
    ]


def done(plan: Plan, went: Spent) -> str:
    """50 steps, 500 samples, 100 samples/s in 0:10; empty if there was no step."""
    if plan.last is None:
        return ""
    parts = [f"{plan.last.step:,} steps"]
    parts += [f"{plan.last.samples:,} samples"] if plan.last.samples else []
    training = went.total - went.start - went.end
    if plan.last.samples and training > 0:
        parts.append(f"{short(plan.last.samples / training)} samples/s")
    return f"{', '.join(parts)} in {clock(went.total)}"


def goodput(went: Spent) -> str:
    """45 %, and where the rest went."""
    rest = f"start {seconds(went.start)}, pauses {seconds(went.pauses)}, end {seconds(went.end)}"
    return f"{100 * went.goodput:.0f} % ({rest})"


def by_cause(changes: tuple[Change, ...]) -> list[str]:
    """How many there were of each cause, and how long they paused the training."""
    kinds: dict[str, list[Change]] = {}
    for change in changes:
        kinds.setdefault(change.cause, []).append(change)
    return [_kind(cause, each) for cause, each in kinds.items()]


def _kind(cause: str, changes: list[Change]) -> str:
    pauses = sorted(change.pause.seconds for change in changes if change.pause is not None)
    line = f"{counted(len(changes), 'change')} by {cause}"
    if not pauses:
        return line
    if len(pauses) == 1:
        return f"{line}: paused {seconds(pauses[0])}"
    middle, longest = seconds(pauses[(len(pauses) - 1) // 2]), seconds(pauses[-1])
    return f"{line}: paused {middle} (median), {longest} at most"
