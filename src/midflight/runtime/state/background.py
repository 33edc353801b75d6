"""A state in two parts: what is small is handed over at once, the rest while all train.

The rest are large tensors that nothing but an optimizer changes: parameters, and the optimizers'
own. A newcomer restores the whole structure at once, with memory for the rest that is not filled
yet, so its script can run its own loop from then on. How the rest travels is `shadow.stream`'s.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from midflight.errors import StateError
from midflight.runtime.state import transfer
from midflight.runtime.state.channel import Group
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Prepared, Snapshot


@dataclass(frozen=True)
class Rest:
    """What newcomers have not received yet, and who sends it."""

    pairs: tuple[tuple[int, int], ...]  # the ranks of giver and newcomer
    snapshot: Snapshot | None = None  # a giver's own, or what a newcomer has received
    numbers: tuple[int, ...] = ()  # of the tensors in it that follow

    @property
    def tensors(self) -> list[Tensor]:
        return [self.snapshot.tensors[n] for n in self.numbers] if self.snapshot else []


def rest_of(holdings: Holdings, snapshot: Snapshot) -> tuple[int, ...]:
    """The numbers of the tensors that can follow."""
    slots = snapshot.layout.slots
    return tuple(n for n in holdings.trained(snapshot) if slots[n].nbytes >= transfer.LARGE)


def send_first(group: Group, target: int, snapshot: Snapshot, numbers: Sequence[int]) -> None:
    """Give all but these tensors to the member of that rank, which calls `receive_first`."""
    head = json.dumps([list(numbers), snapshot.layout.to_json()]).encode()
    rest = frozenset(numbers)
    first = [n for n in range(len(snapshot.tensors)) if n not in rest]
    layout = Layout(tuple(snapshot.layout.slots[n] for n in first))
    tensors = [snapshot.tensors[n] for n in first]
    transfer.send(group, target, Snapshot(head + b"\n" + snapshot.blob, tensors, layout))


def receive_first(
    group: Group, source: int, holdings: Holdings, prepared: Prepared | None
) -> tuple[Snapshot, tuple[int, ...]]:
    """A state in which the tensors of these numbers are only memory."""
    first = transfer.receive(group, source, holdings)
    head, _, blob = first.blob.partition(b"\n")
    try:
        numbers, layout_json = json.loads(head)
        rest = tuple(int(number) for number in numbers)
    except (ValueError, TypeError) as error:
        raise StateError(
            f"received {len(head)} bytes that do not say which tensors follow ({error!r}); "
            "run the same version of Midflight on all members"
        ) from error
    layout = Layout.from_json(layout_json)
    if prepared is None or prepared.layout != layout:
        prepared = holdings.prepare(layout, spare=prepared)
    tensors: list[torch.Tensor] = list(prepared.tensors)
    there = [n for n in range(len(tensors)) if n not in frozenset(rest)]
    for number, tensor in zip(there, first.tensors, strict=True):
        tensors[number] = tensor
    return Snapshot(blob, tensors, layout), rest


def placed(rest: Rest, own: Snapshot) -> list[Tensor] | None:
    """This newcomer's own tensors that are to be filled, once it has restored the structure.

    None: it does not have them in the places that the giver's have.
    """
    assert rest.snapshot is not None
    theirs, mine = rest.snapshot.layout.slots, own.layout.slots
    if len(mine) != len(theirs) or any(mine[n] != theirs[n] for n in rest.numbers):
        return None
    return [own.tensors[number] for number in rest.numbers]
