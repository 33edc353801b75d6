"""The collectives of `horovod.tensorflow`, on one tensor or several, in graphs or not.

Signatures, defaults and messages are Horovod's. `device_dense` and `device_sparse` are taken and
not used: tensors travel through the host's memory. Gradients are Horovod's too: that of a sum over
ranks is the same sum over their gradients, that of a gather is this rank's part of the mean.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common import basics
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.carrying import call, more_rows, named, same
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.mpi_ops import Adasum, Average, Sum

NO_SPARSE_ADASUM = (
    "The Adasum reduction does not currently support sparse tensors. As a workaround please pass "
    "sparse_as_dense=True to DistributedOptimizer"
)
ONLY_SUMS = "Only Sum and Average ops are supported with tf.IndexedSlices"


def members(process_set: ProcessSet) -> int:
    """How many ranks take part, now; a newcomer is alone until its training function begins."""
    return process_set.size() if PROCESS.standing.arrived else 1


def _place(process_set: ProcessSet) -> int:
    return process_set.rank() if PROCESS.standing.arrived else 0


# --- allreduce -----------------------------------------------------------------------------


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
            raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")
    dense = [tf.convert_to_tensor(t) for t, is_sparse in zip(tensors, sparse, strict=True)
             if not is_sparse]  # fmt: skip
    pairs = [compression.compress(tensor) for tensor in dense]
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
        return _grouped_allreduce(_dense(upstream), None, op, scales, process_set)

    return _differentiable(work, tensors, [same(tensor) for tensor in tensors], gradient)


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


def _differentiable(
    work: Any, inputs: Sequence[Any], outputs: Sequence[Any], gradient: Callable[..., Any]
) -> list[Any]:
    @tf.custom_gradient
    def carried(*tensors: Any) -> Any:
        return call(work, tensors, outputs), gradient

    return list(carried(*inputs))


def _dense(gradients: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


# --- gathering, broadcasting ---------------------------------------------------------------


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    (result,) = grouped_allgather([tensor], name, process_set=process_set)
    return result


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
        return _own_rows(_dense(upstream), inputs, process_set)

    return _differentiable(work, inputs, [more_rows(tensor) for tensor in inputs], gradient)


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

    (result,) = _differentiable(work, [value], [same(value)], gradient)
    return result


def _at_root(gradient: Any, root_rank: int, process_set: ProcessSet) -> Any:
    label = named("broadcast_gradient")

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        handle = ops.allreduce_async(given[0], None, label, Average, 1.0, 1.0, process_set)
        mean = ops.synchronize(handle)
        return [mean if basics.rank() == root_rank else torch.zeros_like(mean)]

    return call(work, [gradient], [same(gradient)])[0]


def broadcast_(
    variable: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    return variable.assign(broadcast(variable, root_rank, name, process_set=process_set))


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
    sent = [] if splits is None else [tf.cast(tf.convert_to_tensor(splits), tf.int32)]

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        counts = given[1].tolist() if len(given) > 1 else _even(given[0], members(process_set))
        both = ops.synchronize(ops.alltoall_async(given[0], counts, label, process_set))
        return [both[0], both[1].to(torch.int32)]

    @tf.custom_gradient
    def carried(rows: Any) -> Any:
        specs = [more_rows(rows), tf.TensorSpec([None], tf.int32)]
        output, received = call(work, [rows, *sent], specs)

        def gradient(upstream: Any, _: Any = None) -> Any:
            back, _ = alltoall(upstream, received, process_set=process_set)
            back.set_shape(rows.shape)
            return back

        return (output, received), gradient

    output, received = carried(value)
    return output if splits is None else (output, received)


def _even(tensor: torch.Tensor, ranks: int) -> list[int] | None:
    rows = tensor.shape[0] if tensor.dim() else 0
    return None if rows % ranks else [rows // ranks] * ranks  # None: for the message


# --- reducescatter -------------------------------------------------------------------------


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
        return _gathered(_dense(upstream), inputs, (op, *scales), process_set)

    made = _differentiable(work, inputs, [more_rows(tensor) for tensor in inputs], gradient)
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


# --- where this rank stands, as tensors that are right also after a change of the world ------


def _number(ask: Callable[[], int], name: str | None) -> Any:
    def work(_: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.tensor(ask(), dtype=torch.int32)]

    (result,) = call(work, [], [tf.TensorSpec([], tf.int32)])
    return result if name is None else tf.identity(result, name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(lambda: len(PROCESS.sets.ranks.get(process_set_id, ())), name)


def rank_op(name: str | None = None) -> Any:
    return _number(basics.rank, name)


def local_size_op(name: str | None = None) -> Any:
    return _number(basics.local_size, name)


def local_rank_op(name: str | None = None) -> Any:
    return _number(basics.local_rank, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(
        lambda: int(basics.rank() in PROCESS.sets.ranks.get(process_set_id, ())), name
    )
