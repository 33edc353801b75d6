"""Tensors put together, copied and shared out: allgather, broadcast and alltoall.

Signatures are Horovod's. The gradient of a gather is this rank's part of the mean of what the ranks
say about the whole, that of a broadcast is their mean, on the root only.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common import basics
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import (
    as_written,
    call,
    dense,
    differentiable,
    more_rows,
    named,
    same,
)
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.mpi_ops import Average


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
        summing = ops.grouped_allreduce_async(whole, None, label, Average, 1.0, 1.0, process_set)
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
        handle = ops.allreduce_async(given[0], None, label, Average, 1.0, 1.0, process_set)
        mean = ops.synchronize(handle)
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
