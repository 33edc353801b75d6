"""Sums and means over ranks: allreduce and reducescatter, of one tensor or several.

Signatures, defaults and messages are Horovod's. `device_dense` and `device_sparse` are taken and
not used: tensors travel through the host's memory. The gradient of a sum over ranks is the same sum
over their gradients.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
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
from midflight.compat.horovod.torch.mpi_ops import Adasum, Average, Sum

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
    scales = (float(prescale_factor), float(postscale_factor))
    sparse = [isinstance(tensor, tf.IndexedSlices) for tensor in tensors]
    if any(sparse):
        check_sparse(chosen)
        if scales != (1.0, 1.0):
            raise NotImplementedError(
                "Pre/postscale_factor are not supported with tf.IndexedSlices"
            )
    whole = [tf.convert_to_tensor(t) for t, is_sparse in zip(tensors, sparse, strict=True)
             if not is_sparse]  # fmt: skip
    pairs = [compression.compress(tensor) for tensor in whole]
    summed = _grouped_allreduce([t for t, _ in pairs], name, chosen, scales, process_set)
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


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None,
    op: int,
    scales: tuple[float, float],
    process_set: ProcessSet,
) -> list[Any]:
    if not tensors:
        return []
    label = named("grouped_allreduce", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        handle = ops.grouped_allreduce_async(given, None, label, op, *scales, process_set)
        return list(ops.synchronize(handle))

    def gradient(*upstream: Any) -> Any:
        return _grouped_allreduce(dense(upstream), None, op, scales, process_set)

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
    scales = (float(prescale_factor), float(postscale_factor))
    label = named("grouped_reducescatter", name)

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        handle = ops.grouped_reducescatter_async(given, label, op, process_set, *scales)
        return list(ops.synchronize(handle))

    def gradient(*upstream: Any) -> Any:
        return _gathered(dense(upstream), inputs, (op, *scales), process_set)

    made = differentiable(work, inputs, [more_rows(tensor) for tensor in inputs], gradient)
    return [compression.decompress(t, c) for t, (_, c) in zip(made, pairs, strict=True)]


def _gathered(
    gradients: list[Any],
    inputs: list[Any],
    how: tuple[int, float, float],
    process_set: ProcessSet,
) -> list[Any]:
    label = named("reducescatter_gradient")
    op, before, after = how

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        factor = before * after * (members(process_set) if op == Sum else 1)
        scaled = [grad * factor for grad in given]
        return list(ops.synchronize(ops.grouped_allgather_async(scaled, label, process_set)))

    return call(work, gradients, [same(tensor) for tensor in inputs])
