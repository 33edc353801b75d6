"""The collectives of `horovod.tensorflow`: reductions, gathers, and where this rank stands.

Signatures, defaults and messages are Horovod's. `device_dense` and `device_sparse` are taken and
not used: tensors travel through the host's memory. The gradient of a sum over ranks is the same sum
over their gradients; that of a gather is this rank's part of the mean of what the ranks say about
the whole, and that of a broadcast is their mean, on the root only. Ranks and sizes as tensors are
right also in graphs that outlive a change of the world.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common import basics, process_sets
from midflight.compat.horovod.common.basics import *  # noqa: F403 - scripts look for them here
from midflight.compat.horovod.common.process_sets import *  # noqa: F403
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import (
    as_written,
    call,
    dense,
    differentiable,
    members,
    more_rows,
    named,
    same,
)
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Reduction,
    Sum,
    barrier,
    join,
)

NO_SPARSE_ADASUM = (
    "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
    "sparse_as_dense=True to DistributedOptimizer"
)
ONLY_SUMS = "Only Sum and Average ops are supported with tf.IndexedSlices"


# --- allreduce -----------------------------------------------------------------------------


@as_written
def allreduce(  # noqa: PLR0913
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    (result,) = grouped_allreduce(
        [tensor],
        average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
        name=name,
    )
    return result


@as_written
def grouped_allreduce(  # noqa: PLR0913
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> Any:
    chosen = ops.chosen_op(op, average)
    how = Reduction(chosen, prescale_factor, postscale_factor, process_set)
    sparse = [isinstance(tensor, tf.IndexedSlices) for tensor in tensors]
    if any(sparse):
        check_sparse(chosen)
        if (prescale_factor, postscale_factor) != (1.0, 1.0):
            raise NotImplementedError(
                "Pre/postscale_factor are not supported with tf.IndexedSlices"
            )
    whole = [tf.convert_to_tensor(t) for t, is_sparse in zip(tensors, sparse, strict=True)
             if not is_sparse]  # fmt: skip
    pairs = [compression.compress(tensor) for tensor in whole]
    summed = _allreduce([t for t, _ in pairs], name, how)
    reduced = iter(
        compression.decompress(tensor, context)
        for tensor, (_, context) in zip(summed, pairs, strict=True)
    )
    return [
        _sparse_allreduce(tensor, name, chosen, process_set) if is_sparse else next(reduced)
        for tensor, is_sparse in zip(tensors, sparse, strict=True)
    ]


def check_sparse(op: int) -> None:
    if op == Adasum:
        raise NotImplementedError(NO_SPARSE_ADASUM)
    if op not in (Sum, Average):
        raise NotImplementedError(ONLY_SUMS)


def _allreduce(tensors: Sequence[Any], name: str | None, how: Reduction) -> list[Any]:
    if not tensors:
        return []
    label = named("grouped_allreduce", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return list(ops.synchronize(ops.reduce("grouped_allreduce", given, label, how)))

    def gradient(*upstream: Any) -> Any:
        return _allreduce(dense(upstream), None, how)

    return differentiable(work, tensors, [same(tensor) for tensor in tensors], gradient)


def _sparse_allreduce(slices: Any, name: str | None, op: int, process_set: ProcessSet) -> Any:
    """Rows and their numbers of all ranks, one after the other: the sum of what they stand for."""
    label = named("sparse_allreduce", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return gather_slices(given[0], given[1], label, op, process_set)

    inputs = [tf.convert_to_tensor(slices.values), tf.convert_to_tensor(slices.indices)]
    values, indices = call(work, inputs, [more_rows(tensor) for tensor in inputs])
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def gather_slices(
    values: torch.Tensor, indices: torch.Tensor, name: str | None, op: int, process_set: ProcessSet
) -> list[torch.Tensor]:
    label = f"{name}.slices" if name is not None else None
    handle = ops.grouped_allgather_async([values, indices], label, process_set)
    all_values, all_indices = ops.synchronize(handle)
    if op == Average:
        all_values = all_values / members(process_set)
    return [all_values, all_indices]


# --- reducescatter -------------------------------------------------------------------------


@as_written
def reducescatter(  # noqa: PLR0913
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    (result,) = grouped_reducescatter(
        [tensor],
        compression=compression,
        op=op,
        process_set=process_set,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )
    return result


@as_written
def grouped_reducescatter(  # noqa: PLR0913
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Each rank's rows of the reduced tensors; the first ranks have the rows that are left over."""
    pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    inputs = [tensor for tensor, _ in pairs]
    how = Reduction(ops.ReduceOp(op), prescale_factor, postscale_factor, process_set)
    label = named("grouped_reducescatter", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return list(ops.synchronize(ops.scatter("grouped_reducescatter", given, label, how)))

    def gradient(*upstream: Any) -> Any:
        return _gathered(dense(upstream), inputs, how)

    made = differentiable(work, inputs, [more_rows(tensor) for tensor in inputs], gradient)
    return [compression.decompress(t, c) for t, (_, c) in zip(made, pairs, strict=True)]


def _gathered(gradients: list[Any], inputs: list[Any], how: Reduction) -> list[Any]:
    label = named("reducescatter_gradient")

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        ranks = members(how.process_set) if how.op == Sum else 1
        scaled = [grad * (how.prescale * how.postscale * ranks) for grad in given]
        return list(ops.synchronize(ops.grouped_allgather_async(scaled, label, how.process_set)))

    return call(work, gradients, [same(tensor) for tensor in inputs])


# --- gathering, broadcasting ---------------------------------------------------------------


def _place(process_set: ProcessSet) -> int:
    return process_set.rank() if PROCESS.standing.arrived else 0


@as_written
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    (result,) = grouped_allgather([tensor], name, process_set=process_set)
    return result


@as_written
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Rows of all ranks, one after the other, however many each has."""
    inputs = [tf.convert_to_tensor(tensor) for tensor in tensors]
    inputs = [tf.reshape(t, [1]) if t.shape.rank == 0 else t for t in inputs]
    label = named("grouped_allgather", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return list(ops.synchronize(ops.grouped_allgather_async(given, label, process_set)))

    def gradient(*upstream: Any) -> Any:
        return _own_rows(dense(upstream), inputs, process_set)

    return differentiable(work, inputs, [more_rows(tensor) for tensor in inputs], gradient)


def _own_rows(gradients: list[Any], inputs: list[Any], process_set: ProcessSet) -> list[Any]:
    """This rank's part of the mean of what the ranks say about the whole."""
    label = named("allgather_gradient")
    counts = tf.stack([tf.shape(tensor, out_type=tf.int64)[0] for tensor in inputs])

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        *whole, rows = given
        mean = Reduction(Average, process_set=process_set)
        summing = ops.reduce("grouped_allreduce", whole, label, mean)
        listing = ops.allgather_async(rows.reshape(1, -1), label, process_set)
        listed = ops.synchronize(listing)
        before = listed[: _place(process_set)].sum(0)
        return [
            grad.narrow(0, int(before[place]), int(rows[place])).contiguous()
            for place, grad in enumerate(ops.synchronize(summing))
        ]

    return call(work, [*gradients, counts], [same(tensor) for tensor in inputs])


@as_written
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    value = tf.convert_to_tensor(tensor)
    label = named("broadcast", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [ops.synchronize(ops.broadcast_async(given[0], root_rank, label, process_set))]

    def gradient(upstream: Any) -> Any:
        return _at_root(tf.convert_to_tensor(upstream), root_rank, process_set)

    (result,) = differentiable(work, [value], [same(value)], gradient)
    return result


def _at_root(gradient: Any, root_rank: int, process_set: ProcessSet) -> Any:
    label = named("broadcast_gradient")

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        how = Reduction(Average, process_set=process_set)
        mean = ops.synchronize(ops.reduce("allreduce", given, label, how))
        return [mean if basics.rank() == root_rank else torch.zeros_like(mean)]

    return call(work, [gradient], [same(gradient)])[0]


@as_written
def broadcast_(
    variable: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    return variable.assign(broadcast(variable, root_rank, name, process_set=process_set))


@as_written
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor alone; with `splits` also how many rows came from each rank."""
    value = tf.convert_to_tensor(tensor)
    label = named("alltoall", name)
    sent = [] if splits is None else [_splits(splits)]

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        counts = given[1] if len(given) > 1 else None
        output, received = ops.alltoall_both(given[0], counts, label, process_set)
        return [output, received.to(torch.int32)]

    def carried(rows: Any) -> Any:
        specs = [more_rows(rows), tf.TensorSpec([None], tf.int32)]
        output, received = call(work, [rows, *sent], specs)

        def gradient(upstream: Any, _: Any = None) -> Any:
            back, _ = alltoall(upstream, received, process_set=process_set)
            back.set_shape(rows.shape)
            return back

        return (output, received), gradient

    output, received = tf.custom_gradient(carried)(value)
    return output if splits is None else (output, received)


def _splits(splits: Any) -> Any:
    counts = tf.convert_to_tensor(splits)
    if not counts.dtype.is_integer:
        raise ValueError(f"alltoall wants splits that are integers, got {counts.dtype.name}")
    return tf.cast(counts, tf.int32)


# --- places --------------------------------------------------------------------------------


def _number(ask: Callable[[], int], name: str | None) -> Any:
    def work(_: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.tensor(ask(), dtype=torch.int32)]

    (result,) = call(work, [], [tf.TensorSpec([], tf.int32)])
    return result if name is None else tf.identity(result, name=name)


@as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(lambda: len(PROCESS.sets.ranks.get(process_set_id, ())), name)


@as_written
def rank_op(name: str | None = None) -> Any:
    return _number(basics.rank, name)


@as_written
def local_size_op(name: str | None = None) -> Any:
    return _number(basics.local_size, name)


@as_written
def local_rank_op(name: str | None = None) -> Any:
    return _number(basics.local_rank, name)


@as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(lambda: int(basics.rank() in PROCESS.sets.ranks.get(process_set_id, ())), name)


__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allreduce", "alltoall",
    "barrier", "broadcast", "broadcast_", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "join", "local_rank_op", "local_size_op", "process_set_included_op",
    "rank_op", "reducescatter", "size_op",
]  # fmt: skip
__all__ += basics.__all__
__all__ += process_sets.__all__
