"""What the members of a new world agree on, from one row of numbers each. Pure.

The furthest member's state is the job's. A planned change finds everybody at the same boundary.
After a loss members may stand at different places: some have completed a step that others have
not. Those behind take the state over and leave that step out; those who are as far as anybody do
it again. The change is told to the scripts at one boundary, the same on all members. Newcomers,
whose scripts begin at a boundary, cannot take part before it: if there are any, nobody does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

FIELDS = 6
STEPS = "steps"  # of the script, in the record of a run


class Place(IntEnum):
    """Where in its program a member learns that the world is another one."""

    ARRIVING = 0
    BOUNDARY = 1
    STEP = 2  # in the collective of an optimizer's step
    CALL = 3  # in a collective that the script has called


@dataclass(frozen=True)
class Row:
    holds: int  # 0: a newcomer
    place: int
    steps: int  # completed, of optimizers
    boundaries: int  # begun
    calls: int  # completed, of the script's own collectives
    progress: int

    def numbers(self) -> list[int]:
        row = [self.holds, self.place, self.steps, self.boundaries, self.calls, self.progress]
        assert len(row) == FIELDS
        return row


@dataclass(frozen=True)
class Settled:
    root: int  # whose state is the job's
    behind: tuple[int, ...]  # the ranks that lack it
    furthest: Row
    told_at: int  # the boundary at which scripts hear of the change
    void: bool  # what is between here and the boundary is left out by everybody

    @property
    def steps(self) -> int:
        return self.furthest.steps


def settle(rows: Sequence[Row]) -> Settled:
    """`rows` by rank."""
    root = max(range(len(rows)), key=lambda rank: (*_standing(rows[rank]), -rank))
    best = rows[root]
    behind = tuple(rank for rank, row in enumerate(rows) if _standing(row) < _standing(best))
    old = [row for row in rows if row.holds]
    at_boundary = [row.place == Place.BOUNDARY for row in old]
    void = len(old) < len(rows) and not all(at_boundary)
    if void:
        told = [row.boundaries for row in old]
    else:
        told = [r.boundaries + (not at) for r, at in zip(old, at_boundary, strict=True)]
    return Settled(root, behind, best, max(told, default=0), void)


def _standing(row: Row) -> tuple[int, ...]:
    return (row.holds, row.steps, row.boundaries, row.calls)
