"""What members must have in common before they train together: the terms.

The model's parameters, the options of `join` that concern everybody, and the plan of the data.
Rank 0's terms hold: those who have been training longest have the lowest ranks. Whoever differs is
told in what, with both values. A plan is None until the script has asked for data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midflight.errors import DataError, MidflightError, StateError
from midflight.runtime.state.holdings import Description, difference
from midflight.runtime.state.tree import number_of

UNKNOWN = 0  # the mark of a plan that is not there yet


@dataclass(frozen=True)
class Terms:
    model: Sequence[Description] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # of join
    plan: Mapping[str, Any] | None = None
    epoch: int = 0  # where this member is; a plan that ends before it will not be used again

    def marks(self) -> list[int]:
        """One number for each of the three, equal where they are."""
        plan = UNKNOWN if self.plan is None else _mark(dict(self.plan))
        return [_mark(list(self.model)), _mark(dict(self.options)), plan]

    def to_json(self) -> str:
        return json.dumps([list(self.model), dict(self.options), self.plan, self.epoch])

    @classmethod
    def from_json(cls, text: str | bytes) -> "Terms":
        model, options, plan, epoch = json.loads(text)
        described = [(name, tuple(shape), dtype) for name, shape, dtype in model]
        return cls(described, options, plan, epoch)


def are_equal(marks: Sequence[Sequence[int]]) -> bool:
    """Whether all members' terms are those of rank 0, as far as they are known."""
    first = marks[0]
    return all(
        one == other or (place == 2 and UNKNOWN in (one, other))
        for mark in marks
        for place, (one, other) in enumerate(zip(first, mark, strict=True))
    )


def objection(own: Terms, first: Terms, member: str, leader: str) -> MidflightError | None:
    """Why `member` cannot train with `leader`, which is rank 0; None if it can."""
    if list(own.model) != list(first.model):
        detail = difference(own.model, first.model) or "the order of the parameters differs"
        return StateError(f"this member's model is not that of rank 0: {detail}")
    if found := _named(own.options, first.options, member, leader):
        return StateError(f"{found}; pass the same options to join() on all members")
    if own.plan is None or first.plan is None or _is_over(own, first.epoch):
        return None
    if found := _named(own.plan, first.plan, member, leader):
        return DataError(
            f"{found}; ask for the same data on all members, with values that do not depend on "
            "the size of the world"
        )
    return None


def _is_over(own: Terms, epoch: int) -> bool:
    """Whether the script will go on to another plan, because this one's epochs are done."""
    epochs = own.plan["epochs"] if own.plan else None
    return epochs is not None and epoch >= epochs


def _named(
    own: Mapping[str, Any], others: Mapping[str, Any], member: str, leader: str
) -> str | None:
    found = [
        f"{name} is {own.get(name)} on {member} and {others.get(name)} on {leader}"
        for name in dict.fromkeys((*own, *others))
        if own.get(name) != others.get(name)
    ]
    return ", ".join(found) or None


def _mark(value: object) -> int:
    return number_of(json.dumps(value).encode())
