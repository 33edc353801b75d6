"""The collectives that autograd sees through: allreduce, allgather, broadcast, alltoall and so on.

The gradient of a sum over ranks is the same sum over their gradients; that of a gather is this
rank's part of it, and so on; Horovod's definitions, scale factors included.
"""

from collections.abc import Sequence
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
    def forward(ctx: Any, tensor: Tensor, name: Any, op: int, scales: Any, members: Any) -> Any:
        ctx.op, ctx.scales, ctx.members = op, scales, members
        handle = ops.allreduce_async(tensor, None, name, op, scales[0], scales[1], members)
        return ops.synchronize(handle)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        result = allreduce(
            grad.contiguous(),
            op=ctx.op,
            prescale_factor=ctx.scales[0],
            postscale_factor=ctx.scales[1],
            process_set=ctx.members,
        )
        return result, None, None, None, None


class _GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: Any, op: int, scales: Any, members: Any, *tensors: Tensor) -> Any:
        ctx.op, ctx.scales, ctx.members = op, scales, members
        handle = ops.grouped_allreduce_async(
            list(tensors), None, name, op, scales[0], scales[1], members
        )
        return tuple(ops.synchronize(handle))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        results = grouped_allreduce(
            [grad.contiguous() for grad in grads],
            op=ctx.op,
            prescale_factor=ctx.scales[0],
            postscale_factor=ctx.scales[1],
            process_set=ctx.members,
        )
        return (None, None, None, None, *results)


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
    def forward(ctx: Any, name: Any, op: int, scales: Any, members: Any, *tensors: Tensor) -> Any:
        ctx.op, ctx.scales, ctx.members = op, scales, members
        handle = ops.grouped_reducescatter_async(list(tensors), name, op, members, *scales)
        return tuple(ops.synchronize(handle))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        before, after = ctx.scales
        results = []
        for grad in grads:
            if ctx.op == ops.Sum and PROCESS.standing.arrived:
                grad = grad * ctx.members.size()
            handle = ops.allgather_async((grad * before * after).contiguous(), None, ctx.members)
            results.append(ops.synchronize(handle))
        return (None, None, None, None, *results)


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
    compressed, context = compression.compress(tensor)
    scales = (prescale_factor, postscale_factor)
    reduced = _apply(_Allreduce, compressed, name, chosen, scales, process_set)
    result: Tensor = compression.decompress(reduced, context)
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
    pairs = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    reduced: Any = _apply(
        _GroupedAllreduce, name, chosen, scales, process_set, *(tensor for tensor, _ in pairs)
    )
    contexts = [context for _, context in pairs]
    return [compression.decompress(t, c) for t, c in zip(reduced, contexts, strict=True)]


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    results: Any = _apply(_Allgather, name, process_set, tensor)
    (result,) = results
    return ops._tensor(result)


def grouped_allgather(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    results: Any = _apply(_Allgather, name, process_set, *tensors)
    return list(results)


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    return ops._tensor(_apply(_Broadcast, tensor, root_rank, name, process_set))


def alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor alone; with `splits` also how many rows came from each rank."""
    both: Any = _apply(_Alltoall, tensor, splits, name, process_set)
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
    compressed, context = compression.compress(tensor)
    scales = (prescale_factor, postscale_factor)
    results: Any = _apply(_Reducescatter, name, op, scales, process_set, compressed)
    result: Tensor = compression.decompress(results[0], context)
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
    pairs = [compression.compress(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    results: Any = _apply(_Reducescatter, name, op, scales, process_set, *(t for t, _ in pairs))
    contexts = [context for _, context in pairs]
    return [compression.decompress(t, c) for t, c in zip(results, contexts, strict=True)]
