"""SynchronousSGD, SMA and pair averaging: what is exchanged before an optimizer's step.

All three communicate at the same place in every worker, once a step, through flat buffers; what is
in the parameters and gradients is replaced only when the exchange has succeeded.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from midflight.compat.kungfu.peer import Peer
from midflight.compat.kungfu.torch.ops.collective import op_named
from midflight.compat.kungfu.torch.optimizers.wrapping import Named, wrapped
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.reduction import all_reduce

NamedParameters = Iterable[tuple[str, Tensor]]


def SynchronousSGDOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None, op: str | None = None
) -> Any:
    """Gradients are averaged over all workers. `op="sum"` adds them up, as KungFu does."""
    return wrapped(optimizer, named_parameters, _Gradients(op_named(op, "mean")))


def SynchronousAveragingOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None
) -> Any:
    """Models are averaged over all workers, then each applies its own gradients (SMA)."""
    return wrapped(optimizer, named_parameters, _Models())


def PairAveragingOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None, seed: int = 0
) -> Any:
    """Workers average their models in pairs, drawn anew for each step, then apply gradients."""
    return wrapped(optimizer, named_parameters, _Pairs(seed))


class _Gradients:
    def __init__(self, op: str) -> None:
        self._op = op

    def before_step(self, at: Peer, parameters: Named) -> bool:
        gradients = [_gradient(p) for _, p in parameters if p.requires_grad]

        def action(group: Group, flats: list[Tensor]) -> None:
            for flat in flats:
                all_reduce(group, flat, self._op)

        return _exchanged(at, gradients, action)


class _Models:
    def before_step(self, at: Peer, parameters: Named) -> bool:
        def action(group: Group, flats: list[Tensor]) -> None:
            for flat in flats:
                all_reduce(group, flat, "mean")

        return _exchanged(at, [p.detach() for _, p in parameters], action)


class _Pairs:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def before_step(self, at: Peer, parameters: Named) -> bool:
        number = at.steps

        def action(group: Group, flats: list[Tensor]) -> None:
            other = partner(group.size, group.rank, f"{self._seed}-{number}")
            if other is not None:
                for flat in flats:
                    flat.add_(group.waits.call(partial(_swap, group, other, flat))).div_(2)
            # All go on together, so that a loss finds nobody more than a step ahead.
            all_reduce(group, torch.zeros(1), "sum")

        return _exchanged(at, [p.detach() for _, p in parameters], action)


def _swap(group: Group, other: int, flat: Tensor) -> Tensor:
    theirs = torch.empty_like(flat)
    receiving = group.pg.recv([theirs], other, 0)
    group.pg.send([flat], other, 0).wait()
    receiving.wait()
    return theirs


def partner(size: int, rank: int, seed: str) -> int | None:
    """Whom to average with: the same pairs on all workers; None for the odd one out."""
    ranks = list(range(size))
    random.Random(seed).shuffle(ranks)
    place = ranks.index(rank)
    other = place ^ 1
    return ranks[other] if other < size else None


def _gradient(parameter: Tensor) -> Tensor:
    """Every worker takes part with every parameter, used in this step or not."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _exchanged(
    at: Peer, tensors: list[Tensor], action: Callable[[Group, list[Tensor]], None]
) -> bool:
    """Have the action done on copies, one flat buffer for each kind, and then put them back."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    flats: list[Tensor] = []

    def exchange(group: Group) -> None:
        flats[:] = [torch.cat([t.reshape(-1) for t in same]) for same in kinds.values()]
        action(group, flats)

    if not at.step(exchange):
        return False
    with torch.no_grad():
        for flat, same in zip(flats, kinds.values(), strict=True):
            parts = flat.split([tensor.numel() for tensor in same])
            for tensor, part in zip(same, parts, strict=True):
                tensor.copy_(part.view_as(tensor))
    return True
