"""Entering a world: members find out whose state is the job's, and pass it to whoever lacks it.

Every member says on which terms it trains (`terms`), how far it is and with which state (`claims`).
Those who lack the job's state receive it: newcomers, members that are a step behind, and members
that are as far and differ, who then say in what. A member that cannot hand its state over lets
others do it. If nobody can, those who lack the state leave with the reason, the others train on.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import torch

from midflight.errors import MidflightError, StateError, WorldChanged
from midflight.runtime.group.process_group import Group
from midflight.runtime.state import background, room, transfer
from midflight.runtime.state.background import Rest
from midflight.runtime.state.checksums import checksum
from midflight.runtime.state.claims import NEWCOMER, Claim, Outcome, settle
from midflight.runtime.state.differences import name_differences
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Prepared, Snapshot
from midflight.runtime.state.relay import relay
from midflight.runtime.state.terms import UNKNOWN, Terms, are_equal, objection


@dataclass(frozen=True)
class Standpoint:
    """This member, as it enters a world: how far it is, and its state."""

    progress: tuple[int, int, int] | None  # as in a claim; None: it holds no state
    capture: Callable[[], Snapshot]
    # whether this state, or any to a member without one, may change hands while all train
    background: Callable[[Snapshot | None], bool] = lambda _: False

    @cached_property
    def snapshot(self) -> Snapshot | StateError:
        """The state, or why it cannot be handed over."""
        return try_capture(self.capture)

    @cached_property
    def _checksum(self) -> int:
        return checksum(common_tensors(self.snapshot)) if isinstance(self.snapshot, Snapshot) else 0

    def claim(self, rank: int) -> Claim:
        if self.progress is None:  # rank 0's initial weights are for all, if nobody has others
            can_give = rank == 0 and isinstance(self.snapshot, Snapshot)
            return replace(NEWCOMER, can_give=can_give, background=self.background(None))
        if isinstance(self.snapshot, StateError):
            return Claim(*self.progress)
        roomy, behind = room.has_room(self.snapshot.tensors), self.background(self.snapshot)
        return Claim(*self.progress, self.snapshot.digest, self._checksum, True, roomy, behind)


@dataclass(frozen=True)
class Received:
    """The state that this member takes over, and from whom."""

    snapshot: Snapshot
    source: str
    differed: str  # in what, from a state that is as far; "": it was behind


@dataclass(frozen=True)
class Agreement:
    claim: Claim  # this member's
    received: Received | None = None  # None: it has the job's state
    same_plan: bool = False  # all members know the plan of the data, and it is the same
    rest: Rest | None = None  # what newcomers have not received yet; None: nothing


def agree(
    group: Group,
    holdings: Holdings,
    terms: Terms,
    mine: Standpoint,
    prepared: Prepared | None,
) -> Agreement:
    """What this member claims, and the state that it has to take over, if any.

    A member with a state of its own receives beside it (`room`), so that a transfer that breaks
    off leaves it whole.
    """
    if group.size == 1:
        return Agreement(NEWCOMER)
    claim = mine.claim(group.rank)
    plan = terms.marks()[-1]
    answers = compare_terms(group, replace(terms, plan=None), [plan, *claim.to_numbers()])
    if answers is None:
        raise WorldChanged("members with other terms have to leave first")
    same_plan = plan != UNKNOWN and all(answer[0] == plan for answer in answers)
    outcome = settle([Claim.from_numbers(answer[1:]) for answer in answers])
    if outcome.receivers and not outcome.givers:
        _give_up(group, mine, outcome)
    if outcome.background:
        agreed = Agreement(claim, None, same_plan)
        return _hand_over_first(group, holdings, mine, outcome, prepared, agreed)
    source, snapshot = _hand_over(group, holdings, mine, outcome, prepared)
    if snapshot is None:
        return Agreement(claim, None, same_plan)
    differed = ""
    if group.rank in outcome.differing:
        differed = _name_difference(mine.snapshot, snapshot)
    if group.rank in outcome.cramped and isinstance(mine.snapshot, Snapshot):
        snapshot = room.move_in(mine.snapshot, snapshot)
    taken = Received(snapshot, group.world.names[source], differed)
    return Agreement(claim, taken, same_plan)


def verify(group: Group, mine: Standpoint) -> str:
    """In a world that is whole: in what this member differs from most, or ''.

    Every member has to call it, at the same step.
    """
    claim = mine.claim(group.rank)
    answers = group.gather(claim.to_numbers())
    outcome = settle([Claim.from_numbers(answer) for answer in answers])
    if not outcome.receivers:
        return ""
    holder = outcome.holders[0]
    own = json.dumps([claim.step, *_detailed(mine.snapshot)])
    step, blob, sums = json.loads(group.broadcast_bytes(own.encode(), holder))
    if group.rank not in outcome.receivers:
        return ""
    member, other = group.world.names[group.rank], group.world.names[holder]
    if isinstance(mine.snapshot, StateError):
        what = str(mine.snapshot)
    elif group.rank in outcome.behind:
        what = f"{other} has completed {step} steps"
    else:
        _, unlike = _detailed(mine.snapshot)
        tensors = [n for n, mark in unlike.items() if sums.get(n) != mark]
        what = name_differences(mine.snapshot.blob, blob.encode(), [int(n) for n in tensors])
    return f"after {claim.step} steps the state of {member} is not that of {other}: {what}"


def _detailed(snapshot: Snapshot | StateError) -> tuple[str, dict[str, int]]:
    """A state without its tensors, and a checksum of each of those."""
    if isinstance(snapshot, StateError):
        return "{}", {}
    sums = {str(n): checksum([snapshot.tensors[n]]) for n in snapshot.common}
    return snapshot.blob.decode(), sums


def compare_terms(group: Group, terms: Terms, more: Sequence[int] = ()) -> list[list[int]] | None:
    """Everybody's further numbers; None if others do not have rank 0's terms.

    Raises in the members that do not have them.
    """
    marks = terms.marks()
    answers = group.gather([*marks, *more])
    if are_equal([answer[: len(marks)] for answer in answers]):
        return [answer[len(marks) :] for answer in answers]
    first = Terms.from_json(group.broadcast_bytes(terms.to_json().encode(), 0))
    names = group.world.names
    error = objection(terms, first, names[group.rank], names[0])
    if error is not None:
        raise error
    return None


def try_capture(capture: Callable[[], Snapshot]) -> Snapshot | StateError:
    """The state, or what is wrong with it: that must not end the training."""
    try:
        snapshot = capture()
    except MidflightError as error:
        return StateError(str(error))
    except Exception as error:  # noqa: BLE001 - a state_dict of the script's own may raise anything
        return StateError(f"the state cannot be captured: {type(error).__name__}: {error}")
    if len(snapshot.blob) > transfer.LIMIT:
        return StateError(transfer.too_large(len(snapshot.blob)))
    return snapshot


def common_tensors(snapshot: Snapshot) -> list[torch.Tensor]:
    """Those that have to be equal on all members."""
    return [snapshot.tensors[number] for number in snapshot.common]


def _name_difference(mine: Snapshot | StateError, theirs: Snapshot) -> str:
    """In what two states differ that should be equal."""
    if isinstance(mine, StateError):
        return str(mine)
    return name_differences(mine.blob, theirs.blob, list(_unequal(mine, theirs)))


def _unequal(mine: Snapshot, theirs: Snapshot) -> Iterator[int]:
    """The numbers of the tensors that differ, if both states have the same ones."""
    if [slot[:2] for slot in mine.layout.slots] != [slot[:2] for slot in theirs.layout.slots]:
        return
    for number in mine.common:
        if checksum([mine.tensors[number]]) != checksum([theirs.tensors[number]]):
            yield number


def _give_up(group: Group, mine: Standpoint, outcome: Outcome) -> None:
    """Nobody can hand the state over: those who lack it leave, and say why."""
    holder = outcome.holders[0]
    reason = str(mine.snapshot) if group.rank == holder else ""
    told = group.broadcast_bytes(reason.encode(), holder).decode()
    if group.rank in outcome.receivers:
        raise StateError(f"{group.world.names[holder]} cannot hand the state over: {told}")
    raise WorldChanged("members that cannot be given the state have to leave first")


def _hand_over_first(
    group: Group,
    holdings: Holdings,
    mine: Standpoint,
    outcome: Outcome,
    prepared: Prepared | None,
    agreed: Agreement,
) -> Agreement:
    """Newcomers get what is small; the rest follows while all train."""
    received = None
    rest = Rest(tuple(zip(itertools.cycle(outcome.givers), outcome.receivers)))
    for source, target in rest.pairs:
        if group.rank == source:
            assert isinstance(mine.snapshot, Snapshot)
            numbers = background.rest_of(holdings, mine.snapshot)
            rest = replace(rest, snapshot=mine.snapshot, numbers=numbers)
            give = partial(
                background.send_first, group.control, target, mine.snapshot, rest.numbers
            )
            group.waits.call(give)
        elif group.rank == target:
            take = partial(background.receive_first, group.control, source, holdings, prepared)
            snapshot, numbers = group.waits.call(take)
            received = Received(snapshot, group.world.names[source], "")
            rest = replace(rest, snapshot=snapshot, numbers=numbers)
    return replace(agreed, received=received, rest=rest)


def _hand_over(
    group: Group,
    holdings: Holdings,
    mine: Standpoint,
    outcome: Outcome,
    prepared: Prepared | None,
) -> tuple[int, Snapshot | None]:
    """From whom this member has got the state, and the state; (-1, None) if it has its own."""
    giver, received = -1, None
    if group.rank in outcome.cramped and isinstance(mine.snapshot, Snapshot):
        prepared = room.host_room(mine.snapshot)
    for source, target in chain.from_iterable(relay(outcome.givers, outcome.receivers)):
        # what lies in host memory goes over gloo, whatever the backend is
        by_host = {source, target} & {*outcome.cramped}
        pg = group.control if by_host else group.pg
        if group.rank == source:
            held = received or mine.snapshot
            assert isinstance(held, Snapshot)
            group.waits.call(partial(transfer.send, pg, target, held))
        elif group.rank == target:
            in_place = mine.progress is None
            take = partial(transfer.receive, pg, source, holdings, prepared)
            giver, received = source, group.waits.call(partial(take, in_place=in_place))
    return giver, received
