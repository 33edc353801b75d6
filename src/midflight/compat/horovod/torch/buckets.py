"""Which gradients travel together, and how far each bucket has come in this step.

Parameters are taken in reverse order, as backward reaches them, into buckets of some megabytes: a
small model has one, and its gradients go out in one transfer when the last of them is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

BUCKET_BYTES = 25 << 20
FIRST_BYTES = 4 << 20  # a model of that size is one bucket; in a larger one, the first to go


@dataclass(eq=False)
class Slot:
    """One parameter's place."""

    parameter: Tensor
    name: str
    bucket: "Bucket"
    delay: int  # backward passes until its gradient is complete
    sparse: bool = False  # its last gradient was, so that a missing one is, too


@dataclass(eq=False)
class Bucket:
    number: int
    slots: list[Slot] = field(default_factory=list)
    complete: int = 0  # parameters whose gradient is
    sent: bool = False


def arrange(
    named: Sequence[tuple[str, Tensor]],
    delay: int,
    groups: Sequence[Sequence[Tensor]] | None,
    num_groups: int,
) -> list[Bucket]:
    """`groups` and `num_groups` are the caller's wishes; None and 0: as it fits best."""
    buckets: list[Bucket] = []
    for members in _grouped(list(reversed(named)), groups, num_groups):
        bucket = Bucket(len(buckets))
        bucket.slots = [Slot(parameter, name, bucket, delay) for name, parameter in members]
        buckets.append(bucket)
    return buckets


Named = tuple[str, Tensor]


def _grouped(
    named: list[Named], groups: Sequence[Sequence[Tensor]] | None, num_groups: int
) -> list[list[Named]]:
    if groups is not None:
        chosen = {id(p): place for place, group in enumerate(groups) for p in group}
        sorted_out: list[list[Named]] = [[] for _ in groups]
        rest: list[Named] = []
        for name, parameter in named:
            place = chosen.get(id(parameter))
            (rest if place is None else sorted_out[place]).append((name, parameter))
        return [group for group in sorted_out if group] + _by_size(rest)
    if num_groups > 0:
        length = max(1, -(-len(named) // num_groups))
        return [named[start : start + length] for start in range(0, len(named), length)]
    return _by_size(named)


def _by_size(named: list[Named]) -> list[list[Named]]:
    total = sum(_bytes(parameter) for _, parameter in named)
    if total <= FIRST_BYTES:
        return [named] if named else []
    result: list[list[Named]] = [[]]
    size, limit = 0, FIRST_BYTES
    for name, parameter in named:
        if result[-1] and size + _bytes(parameter) > limit:
            result.append([])
            size, limit = 0, BUCKET_BYTES
        result[-1].append((name, parameter))
        size += _bytes(parameter)
    return result


def _bytes(parameter: Tensor) -> int:
    return parameter.numel() * parameter.element_size()
