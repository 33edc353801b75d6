"""The collectives that autograd sees through: allreduce, allgather, broadcast, alltoall and so on.

The gradient of a sum over ranks is the same sum over their gradients; that of a gather is this
rank's part of it, and so on; Horovod's definitions, scale factors included.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from midflight.compat.horovod.common.basics import rank
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.compression import Compression


def _apply(function: Any, *arguments: Any) -> Any:
    """torch has no types for this."""
    return function.apply(*arguments)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, name: Any, how: ops.Reduction, *tensors: Tensor) -> Any:
        ctx.kind, ctx.how = kind, how
        result = ops.synchronize(ops.reduce(kind, list(tensors), name, how))
        return (result,) if kind == "allreduce" else tuple(result)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        whole = [grad.contiguous() for grad in grads]
        return (None, None, None, *_apply(_Allreduce, ctx.kind, None, ctx.how, *whole))


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, members: Any, *tensors: Tensor) -> Any:
        ctx.rows = [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]
        ctx.scalars = [tensor.dim() == 0 for tensor in tensors]
        ctx.members = members
        return tuple(ops.synchronize(ops.grouped_allgather_async(list(tensors), name, members)))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        whole = [grad.contiguous() for grad in grads]
        reduced = grouped_allreduce(whole, op=ops.Average, process_set=ctx.members)
        rows = ops.synchronize(
            ops.allgather_async(torch.tensor([ctx.rows]), process_set=ctx.members)
        )
        own = ctx.members.rank() if PROCESS.standing.arrived else 0
        results = []
        for place, (grad, count, scalar) in enumerate(
            zip(reduced, ctx.rows, ctx.scalars, strict=True)
        ):
            start = int(rows[:own, place].sum())
            part = grad.narrow(0, start, count)
            results.append(part.reshape(()) if scalar else part)
        return (None, None, *results)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, name: Any, members: Any) -> Any:
        ctx.root, ctx.members = root, members
        return ops.synchronize(ops.broadcast_async(tensor, root, name, members))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        reduced = allreduce(grad.contiguous(), op=ops.Average, process_set=ctx.members)
        if rank() != ctx.root:
            reduced = reduced * 0
        return reduced, None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: Any, members: Any) -> Any:
        output, received = ops.alltoall_both(tensor, splits, name, members)
        ctx.received, ctx.members = received, members
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        back, _ = ops.alltoall_both(grads[0].contiguous(), ctx.received, None, ctx.members)
        return back, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, how: ops.Reduction, *tensors: Tensor) -> Any:
        ctx.how = how
        return tuple(
            ops.synchronize(ops.scatter("grouped_reducescatter", list(tensors), name, how))
        )

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        how = ctx.how
        results = []
        for grad in grads:
            if how.op == ops.Sum and PROCESS.standing.arrived:
                grad = grad * how.process_set.size()
            scaled = (grad * how.prescale * how.postscale).contiguous()
            results.append(ops.synchronize(ops.allgather_async(scaled, None, how.process_set)))
        return (None, None, *results)


def _compressed(
    tensors: Sequence[Tensor], compression: Any, reduce: Callable[..., Any]
) -> list[Tensor]:
    """What `reduce` makes of the tensors, which travel compressed."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    reduced = reduce(*(tensor for tensor, _ in pairs))
    contexts = [context for _, context in pairs]
    return [compression.decompress(t, c) for t, c in zip(reduced, contexts, strict=True)]


def allreduce(  # noqa: PLR0913
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    chosen = ops.chosen_op(op, average)
    how = ops.Reduction(chosen, prescale_factor, postscale_factor, process_set)
    reduce = partial(_apply, _Allreduce, "allreduce", name, how)
    (result,) = _compressed([tensor], compression, reduce)
    return result


def grouped_allreduce(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    chosen = ops.chosen_op(op, average)
    how = ops.Reduction(chosen, prescale_factor, postscale_factor, process_set)
    reduce = partial(_apply, _Allreduce, "grouped_allreduce", name, how)
    return _compressed(tensors, compression, reduce)


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    result: Tensor = _apply(_Allgather, name, process_set, tensor)[0]
    return result


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    return list(_apply(_Allgather, name, process_set, *tensors))


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    result: Tensor = _apply(_Broadcast, tensor, root_rank, name, process_set)
    return result


def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor alone; with `splits` also how many rows came from each rank."""
    both = _apply(_Alltoall, tensor, splits, name, process_set)
    return both[0] if splits is None else both


def reducescatter(  # noqa: PLR0913
    tensor: Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = ops.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    how = ops.Reduction(ops.ReduceOp(op), prescale_factor, postscale_factor, process_set)
    (result,) = _compressed([tensor], compression, partial(_apply, _Reducescatter, name, how))
    return result


def grouped_reducescatter(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = ops.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    how = ops.Reduction(ops.ReduceOp(op), prescale_factor, postscale_factor, process_set)
    return _compressed(tensors, compression, partial(_apply, _Reducescatter, name, how))


__all__ = [
    "allgather", "allreduce", "alltoall", "broadcast", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "reducescatter",
]  # fmt: skip
