"""A shadow join under way: what members tell each other at each step, and what follows from it.

From the switch step on the newcomers are in the world without a share of the samples. Before each
step all members say where they stand. Once all newcomers have caught up, a step is agreed on from
which they have a share; there everybody compares states, as on entering a world, and only then a
newcomer counts as a holder of the state. If anybody cannot go on like this, the newcomers receive
the state at once instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch

from midflight.runtime.data.plan import Seat
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group
from midflight.runtime.shadow.stream import CatchUp, Copies, Giver, Pace, Route
from midflight.runtime.state.background import Rest, placed
from midflight.runtime.state.layout import Snapshot

MARGIN = 1  # steps between the agreement on a step and the step


class Word(IntEnum):
    """What a member says before a step."""

    WAIT = 0  # a newcomer that has not caught up
    READY = 1  # nobody has to wait for this member
    GIVE_UP = 2
    HURRY = 3  # a newcomer that runs out of room


@dataclass(frozen=True)
class Share:
    """From this step on all have a share."""

    step: int


@dataclass(frozen=True)
class Conclude:
    """Compare states now; who lacks the state receives it."""


Verdict = Share | Conclude | None


def judge(answers: Sequence[Sequence[int]], step: int, agreed: int | None) -> Verdict:
    """What follows from all members' words and horizons before `step`; None: go on.

    `agreed`: the step from which all are to have a share, if there is one yet. It lies beyond the
    data that members have loaded, so that none is dropped.
    """
    words = [word for word, _ in answers]
    if Word.GIVE_UP in words:
        return Conclude()
    if agreed is not None:
        return Conclude() if step >= agreed else None
    if all(word == Word.READY for word in words):
        return Share(max(step, *(horizon for _, horizon in answers)) + MARGIN)
    return None


def seat_in(group: Group, shadow: "Shadow | None" = None) -> Seat:
    """This member's, while that shadow join is under way."""
    sharers = shadow.sharers if shadow is not None else None
    return Seat(group.generation, group.rank, group.size, sharers)


@dataclass(frozen=True)
class Means:
    """What streams need."""

    line: KeyLine
    pace: Callable[[], Pace]
    copies: Copies


def begin(
    group: Group,
    rest: Rest,
    means: Means,
    capture: Callable[[], Snapshot],
    optimizers: Sequence[torch.optim.Optimizer],
) -> "Shadow":
    """Have the rest of the state on its way; a newcomer has restored what it has."""
    routes = [Route(group.world, *pair) for pair in rest.pairs]
    own_routes = [route for route in routes if route.giver == group.rank]
    copied = means.copies.of(rest.tensors) if own_routes else []
    givers = [Giver(route, means.line, copied, means.pace()) for route in own_routes]
    shadow = Shadow(group, len(routes), givers)
    own = next((route for route in routes if route.newcomer == group.rank), None)
    if own is not None and (places := placed(rest, capture())) is not None:
        shadow.catch_up = CatchUp(own, means.line, places, optimizers)
    return shadow


class Shadow:
    """This member's part in it."""

    def __init__(self, group: Group, newcomers: int, givers: Sequence[Giver]) -> None:
        self.group = group
        self.sharers = group.size - newcomers
        self.catch_up: CatchUp | None = None  # a newcomer's
        self._givers = givers
        self._agreed: int | None = None
        self._asked = -1  # before this step all have said where they stand

    @property
    def is_newcomer(self) -> bool:
        return self.group.rank >= self.sharers

    def is_due(self, step: int) -> bool:
        """Whether this member has not said yet where it stands before that step."""
        return self._asked != step

    def word(self) -> Word:
        if not self.is_newcomer:
            return Word.GIVE_UP if any(giver.failed for giver in self._givers) else Word.READY
        if self.catch_up is None or self.catch_up.failed:
            return Word.GIVE_UP
        if self.catch_up.in_a_hurry:
            return Word.HURRY
        return Word.READY if self.catch_up.is_close else Word.WAIT

    def consult(self, step: int, horizon: int, *, hurry: bool) -> Verdict:
        """Every member has to call it before the same step. `hurry`: it has to end now."""
        self._asked = step
        word = Word.GIVE_UP if hurry else self.word()
        answers = self.group.gather([word, horizon])
        if Word.HURRY in (said for said, _ in answers):
            for giver in self._givers:
                giver.hurry()
        verdict = judge(answers, step, self._agreed)
        if isinstance(verdict, Share):
            self._agreed = verdict.step
        return verdict

    def queue(self) -> None:
        """A newcomer's step of the optimizers: taken later."""
        if self.catch_up is not None:
            self.catch_up.queue()

    def finish(self) -> bool:
        """Whether this member holds the state, now that all are to compare theirs."""
        if not self.is_newcomer:
            return True
        return self.catch_up is not None and self.catch_up.finish()

    def cut(self) -> None:
        """The world is over; called from any thread."""
        for giver in self._givers:
            giver.cut()
        if self.catch_up is not None:
            self.catch_up.cut()

    def close(self) -> None:
        for giver in self._givers:
            giver.close()
        if self.catch_up is not None:
            self.catch_up.close()
