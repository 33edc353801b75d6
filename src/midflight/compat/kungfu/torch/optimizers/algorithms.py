"""SynchronousSGD, SMA and pair averaging: what is exchanged before an optimizer's step.

All three communicate at the same place in every worker, once a step, through flat buffers; what is
in the parameters and gradients is replaced only when the exchange has succeeded.
"""

import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from midflight.compat.kungfu.peer import Peer, peer
from midflight.compat.kungfu.torch.ops.collective import op_named
from midflight.compat.kungfu.torch.optimizers.wrapping import Named, wrapped
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.reduction import all_reduce

NamedParameters = Iterable[tuple[str, Tensor]]
Exchange = Callable[[Peer, list[Tensor]], bool]
"""Replaces the tensors by what all workers have made of them. False: leave this step out."""


def SynchronousSGDOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None, op: str | None = None
) -> Any:
    """Gradients are averaged over all workers. `op="sum"` adds them up, as KungFu does."""
    if op is None:
        _say_that_gradients_are_averaged()
    return wrapped(optimizer, named_parameters, _Gradients(op_named(op, "mean")))


def SynchronousAveragingOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None
) -> Any:
    """Models are averaged over all workers, then each applies its own gradients (SMA)."""
    return wrapped(optimizer, named_parameters, _Models(reduced("mean")))


def PairAveragingOptimizer(
    optimizer: Optimizer, named_parameters: NamedParameters | None = None, seed: int = 0
) -> Any:
    """Workers average their models in pairs, drawn anew for each step, then apply gradients."""
    return wrapped(optimizer, named_parameters, _Models(in_pairs(seed)))


def _say_that_gradients_are_averaged() -> None:
    """It divides the learning rate of a script that was tuned with KungFu."""
    at = peer()
    if not at.alone and at.standing.rank == 0 and not at.optimizers:
        print(
            "kungfu: gradients are averaged over the workers, where KungFu adds them up; "
            'SynchronousSGDOptimizer(..., op="sum") does that, op="mean" hides this line',
            file=sys.stderr,
            flush=True,
        )


class _Gradients:
    def __init__(self, op: str) -> None:
        self._exchange = reduced(op)

    def before_step(self, at: Peer, parameters: Named) -> bool:
        return self._exchange(at, [_gradient(p) for _, p in parameters if p.requires_grad])


class _Models:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def before_step(self, at: Peer, parameters: Named) -> bool:
        return self._exchange(at, [p.detach() for _, p in parameters])


def reduced(op: str) -> Exchange:
    """All workers' tensors become their mean, or what `op` says."""

    def action(group: Group, flats: list[Tensor]) -> None:
        for flat in flats:
            all_reduce(group, flat, op)

    return lambda at, tensors: _exchanged(at, tensors, action)


def in_pairs(seed: int) -> Exchange:
    """The tensors of two workers become their mean; who with whom is drawn for each step."""

    def exchange(at: Peer, tensors: list[Tensor]) -> bool:
        number = at.steps

        def action(group: Group, flats: list[Tensor]) -> None:
            other = partner(group.size, group.rank, f"{seed}-{number}")
            if other is not None:
                for flat in flats:
                    flat.add_(group.waits.call(partial(_swap, group, other, flat))).div_(2)
            # All go on together, so that a loss finds nobody more than a step ahead.
            all_reduce(group, torch.zeros(1), "sum")

        return _exchanged(at, tensors, action)

    return exchange


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
