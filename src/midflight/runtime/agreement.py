"""Entering a world: members find out who is furthest, and pass that state to whoever lacks it.

Every member says how many steps it has completed (or that it holds no state). The most advanced
state wins; steps are synchronous, so those who lack it are newcomers or one step behind. Members
whose models differ are told which parameter it is.
"""

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from midflight.errors import StateError, WorldChanged
from midflight.runtime import transfer
from midflight.runtime.group import Group
from midflight.runtime.holdings import Holdings, difference
from midflight.runtime.layout import Prepared, Snapshot
from midflight.runtime.relay import relay

NOTHING = -1  # the step of a member that holds no state


def agree(
    group: Group,
    holdings: Holdings,
    step: int,
    prepared: Prepared | None,
    capture: Callable[[], Snapshot],
) -> Snapshot | None:
    """The state this member has to take over, or None if it has the newest.

    A member with a state of its own receives into spare memory, so that a transfer that breaks
    off leaves it whole.
    """
    if group.size == 1:
        return None
    mark = _mark(holdings)
    answers = group.gather([step, mark])
    if any(answer[1] != answers[0][1] for answer in answers):
        _name_difference(group, holdings, same=mark == answers[0][1])
        raise WorldChanged("members with another model have to leave first")
    steps = [answer[0] for answer in answers]
    best = max(steps)
    holders = [rank for rank in range(group.size) if steps[rank] == best]
    if best == NOTHING:  # the very beginning: rank 0's initial weights are the state
        holders = [0]
    receivers = [rank for rank in range(group.size) if rank not in holders]
    received: Snapshot | None = None
    for source, target in itertools.chain.from_iterable(relay(holders, receivers)):
        if group.rank == source:
            give = partial(transfer.send, group.pg, target, received or capture())
            group.waits.call(give)
        elif group.rank == target:
            in_place = step == NOTHING
            take = partial(transfer.receive, group.pg, source, holdings, prepared)
            received = group.waits.call(partial(take, in_place=in_place))
    return received


def compare_models(group: Group, holdings: Holdings) -> None:
    """While a change is prepared: a newcomer with another model than rank 0 hears it here."""
    mark = _mark(holdings)
    marks = [answer[0] for answer in group.gather([mark])]
    if any(other != marks[0] for other in marks):
        _name_difference(group, holdings, same=mark == marks[0])


def _mark(holdings: Holdings) -> int:
    return int(holdings.fingerprint[:15], 16)


def _name_difference(group: Group, holdings: Holdings, *, same: bool) -> None:
    """The models differ: whoever is not like rank 0 says in which parameter."""
    mine = json.dumps(holdings.describe()).encode()
    theirs = json.loads(group.broadcast_bytes(mine, 0))
    if same:
        return
    others: list[Any] = [(name, tuple(shape), dtype) for name, shape, dtype in theirs]
    detail = difference(holdings.describe(), others) or "the order of the parameters differs"
    raise StateError(f"this member's model is not that of rank 0: {detail}")
