"""Collectives over the cluster of the moment. Each is done again if a member is lost meanwhile.

Broadcasts come from rank 0, which always holds the state: newcomers stand behind those who stay.
The asynchronous names are there for scripts that use them; the work is done when they return.
"""

from collections.abc import Iterable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from midflight.compat.kungfu import peer
from midflight.errors import UsageError
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import Group

_OPS = {"sum": "sum", "mean": "mean", "avg": "mean", "min": "min", "max": "max", "prod": "product"}


def op_named(op: str | None, default: str = "sum") -> str:
    """Midflight's word for an operation."""
    found = _OPS.get(default if op is None else op)
    if found is None:
        raise UsageError(f"the operations are {', '.join(_OPS)}, got {op!r:.40}")
    return found


def all_reduce_fn(x: Tensor, op: str | None = None) -> Tensor:
    """A new tensor with the sum (or `op`) over all workers."""
    name = op_named(op)

    def action(group: Group, tensors: list[Tensor]) -> None:
        reduction.all_reduce(group, tensors[0], name)

    (result,) = peer.peer().call([x.contiguous()], action)
    return result


all_reduce = all_reduce_fn


def inplace_all_reduce_op(x: Tensor, op: str | None = None) -> None:
    _put(x, all_reduce_fn(x, op))


def inplace_all_reduce_async_op(x: Tensor, name: str, op: str | None = None) -> int:
    """As above; the handle it returns is done already."""
    inplace_all_reduce_op(x, op)
    return 0


def broadcast(x: Tensor, root: int = 0) -> Tensor:
    """A new tensor with the values that the worker of rank `root` has."""
    (result,) = broadcast_all([x], root)
    return result


def inplace_broadcast_async_op(x: Tensor, name: str) -> int:
    _put(x, broadcast(x))
    return 0


def wait_handle(handle: int) -> None:
    """It is done already."""


def wait_all_handles(handles: Iterable[int]) -> None:
    """They are done already."""


def broadcast_parameters(state_dict: Mapping[str, object]) -> None:
    """Every tensor of a `state_dict()` becomes that of rank 0, in place."""
    tensors = [value for value in state_dict.values() if isinstance(value, Tensor)]
    for own, received in zip(tensors, broadcast_all(tensors, 0), strict=True):
        _put(own, received)


def all_gather(x: Tensor) -> Tensor:
    """The tensors of all workers, stacked in the order of their ranks."""
    at = peer.peer()

    def action(group: Group, tensors: list[Tensor]) -> None:
        mine = x.detach().contiguous()
        theirs = [torch.empty_like(mine) for _ in range(group.size)]
        group.waits.wait(group.pg.allgather([theirs], [mine]), mine)
        tensors[:] = [torch.stack(theirs)]

    (result,) = at.call([x.detach().contiguous().unsqueeze(0)], action)
    return result


def broadcast_all(tensors: list[Tensor], root: int = 0) -> list[Tensor]:
    """New tensors with the values that the worker of rank `root` has."""

    def action(group: Group, tensors: list[Tensor]) -> None:
        if not 0 <= root < group.size:
            raise UsageError(f"there are ranks 0 to {group.size - 1} to broadcast from, got {root}")
        options = dist.BroadcastOptions()
        options.rootRank = root
        for tensor in tensors:
            flat = tensor.view(torch.uint8) if tensor.dtype is torch.bool else tensor
            group.waits.wait(group.pg.broadcast([flat], options), flat)

    return peer.peer().call([tensor.contiguous() for tensor in tensors], action)


def _put(target: Tensor, values: Tensor) -> None:
    with torch.no_grad():
        target.copy_(values)
