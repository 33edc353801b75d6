"""The collectives of `horovod.torch`: in place or not, at once or later, one tensor or several.

Every call becomes one named request of the engine. A tensor that needs a gradient goes through
`autograd`. Signatures, defaults and messages are Horovod's.
"""

import warnings
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from midflight.compat.horovod.common.basics import *  # noqa: F403 - scripts look for them here
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import DTYPES
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.engine.requests import Request
from midflight.compat.horovod.engine.work import Work


class ReduceOp(IntEnum):
    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average, Sum, Adasum = ReduceOp.Average, ReduceOp.Sum, ReduceOp.Adasum
Min, Max, Product = ReduceOp.Min, ReduceOp.Max, ReduceOp.Product
_BOTH = "The op parameter supersedes average. Please provide only one of them."


def chosen_op(op: int | None, average: bool | None) -> ReduceOp:
    """What the two ways to say it come to."""
    if op is not None:
        if average is not None:
            raise ValueError(_BOTH)
        return ReduceOp(op)
    if average is not None:
        warnings.warn(
            "Parameter `average` has been replaced with `op`.", DeprecationWarning, stacklevel=3
        )
        return Average if average else Sum
    return Average


def check(*tensors: Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError("Tensor is required to be contiguous.")
        if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            raise ValueError(f"Tensor type {tensor.type()} is not supported.")


def request(kind: str, name: str, tensors: Sequence[Tensor], **more: Any) -> Request:
    chosen: ProcessSet = more.pop("process_set", global_process_set)
    if chosen.process_set_id is None:
        raise ValueError("the process set has not been added yet; use hvd.add_process_set()")
    return Request(
        name,
        kind,
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        dtypes=tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors),
        device=tensors[0].device.type if tensors else "cpu",
        process_set=chosen.process_set_id,
        **more,
    )


def _reduce(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str,
    op: ReduceOp,
    scales: tuple[float, float],
    process_set: ProcessSet,
    single: bool,
) -> int:
    check(*tensors)
    if op == Adasum:
        _check_adasum(tensors, process_set)
    asked = request(
        words.ALLREDUCE,
        name,
        tensors,
        op=op.name.lower(),
        prescale=float(scales[0]),
        postscale=float(scales[1]),
        process_set=process_set,
    )
    given = [tensor.detach() for tensor in tensors]
    into = [g if o is t else o for g, o, t in zip(given, outputs, tensors, strict=True)]
    kept = list(outputs)
    after = (lambda _: kept[0]) if single else (lambda _: kept)
    return PROCESS.submit(Work(asked, given, into, after))


def _check_adasum(tensors: Sequence[Tensor], process_set: ProcessSet) -> None:
    if process_set.process_set_id != global_process_set.process_set_id:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    ranks = PROCESS.standing.size
    if ranks & (ranks - 1):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")
    if not all(tensor.is_floating_point() for tensor in tensors):
        raise ValueError("Adasum wants floating point tensors")


# --- allreduce -----------------------------------------------------------------------------


def allreduce_async(  # noqa: PLR0913
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    output = torch.empty_like(tensor)
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("allreduce", name, process_set.process_set_id)
    return _reduce([tensor], [output], named, chosen_op(op, average), scales, process_set, True)


def allreduce_async_(  # noqa: PLR0913
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("allreduce", name, process_set.process_set_id)
    return _reduce([tensor], [tensor], named, chosen_op(op, average), scales, process_set, True)


def allreduce_(  # noqa: PLR0913
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    handle = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return _tensor(synchronize(handle))


def grouped_allreduce_async(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    outputs = [torch.empty_like(tensor) for tensor in tensors]
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("grouped_allreduce", name, process_set.process_set_id)
    return _reduce(tensors, outputs, named, chosen_op(op, average), scales, process_set, False)


def grouped_allreduce_async_(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("grouped_allreduce", name, process_set.process_set_id)
    return _reduce(tensors, tensors, named, chosen_op(op, average), scales, process_set, False)


def grouped_allreduce_(  # noqa: PLR0913
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return list(synchronize(handle))


def sparse_allreduce_async(
    tensor: Tensor,
    name: str,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns a function that waits and gives the sparse result, as Horovod does."""
    coalesced = tensor if tensor.is_coalesced() else tensor.coalesce()
    indices = coalesced.indices().transpose(0, 1).contiguous()
    first = allgather_async(indices, name=f"{name}.indices", process_set=process_set)
    values = coalesced.values().contiguous()
    second = allgather_async(values, name=f"{name}.values", process_set=process_set)

    def finish() -> Tensor:
        all_values, all_indices = synchronize(second), synchronize(first)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(
            all_indices.transpose(0, 1), all_values, tensor.shape, check_invariants=False
        )

    return finish


# --- gathering, broadcasting ---------------------------------------------------------------


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    check(tensor)
    whole = tensor.detach()
    rows = whole.reshape(1) if whole.dim() == 0 else whole
    asked = request(
        words.ALLGATHER,
        PROCESS.name("allgather", name, process_set.process_set_id),
        [rows],
        process_set=process_set,
    )
    return PROCESS.submit(Work(asked, [rows], [], lambda results: results[0]))


def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    check(*tensors)
    rows = [t.detach().reshape(1) if t.dim() == 0 else t.detach() for t in tensors]
    named = PROCESS.name("grouped_allgather", name, process_set.process_set_id)
    asked = request(words.ALLGATHER, named, rows, process_set=process_set)
    return PROCESS.submit(Work(asked, rows, [], list))


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return _broadcast(tensor, torch.empty_like(tensor), root_rank, name, process_set)


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return _broadcast(tensor, tensor, root_rank, name, process_set)


def _broadcast(
    tensor: Tensor, output: Tensor, root: int, name: str | None, process_set: ProcessSet
) -> int:
    check(tensor)
    named = PROCESS.name("broadcast", name, process_set.process_set_id)
    asked = request(words.BROADCAST, named, [tensor], root=int(root), process_set=process_set)
    given = tensor.detach()
    into = given if output is tensor else output
    return PROCESS.submit(Work(asked, [given], [into], lambda _: output))


def broadcast_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    return _tensor(synchronize(broadcast_async_(tensor, root_rank, name, process_set)))


def alltoall_async(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """For the tensor alone; with `splits` also how many rows came from each rank."""
    alone = splits is None
    return _alltoall(tensor, splits, name, process_set, lambda both: both[0] if alone else both)


def alltoall_both(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None,
    name: str | None,
    process_set: ProcessSet,
) -> tuple[Tensor, Tensor]:
    """The tensor, and how many rows came from each rank."""
    output, received = synchronize(_alltoall(tensor, splits, name, process_set, tuple))
    return output, received


def _alltoall(
    tensor: Tensor,
    splits: Tensor | Sequence[int] | None,
    name: str | None,
    process_set: ProcessSet,
    after: Callable[[Any], Any],
) -> int:
    check(tensor)
    ranks = process_set.size() if PROCESS.standing.arrived else 0
    counts: list[int] = []
    problem = ""
    try:
        counts = _counts(tensor, splits, ranks)
    except ValueError as error:  # the others wait for this rank: all of them hear it
        problem = str(error)
    named = PROCESS.name("alltoall", name, process_set.process_set_id)
    asked = request(
        words.ALLTOALL,
        named,
        [tensor],
        splits=tuple(counts),
        problem=problem,
        process_set=process_set,
    )
    given = tensor.detach() if problem else tensor.detach()[: sum(counts)]
    return PROCESS.submit(Work(asked, [given], [], after))


def _counts(tensor: Tensor, splits: Tensor | Sequence[int] | None, ranks: int) -> list[int]:
    """How many rows go to whom; `ranks` is 0 where the others are not known yet."""
    if not tensor.dim():
        raise ValueError("alltoall wants a tensor with at least one dimension")
    rows = tensor.shape[0]
    if splits is None:
        if rows % (ranks or 1):
            raise ValueError(
                f"alltoall without splits wants rows that divide by {ranks} ranks, got {rows}"
            )
        return [rows // (ranks or 1)] * (ranks or 1)
    given = torch.as_tensor(splits)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise ValueError(f"alltoall wants splits that are integers, got {given.dtype}")
    if given.dim() != 1 or (ranks and len(given) != ranks):
        raise ValueError(f"alltoall wants splits of the shape [{ranks}], got {list(given.shape)}")
    counts = [int(count) for count in given]
    if min(counts) < 0:
        raise ValueError(f"alltoall wants splits of 0 or more rows, got {counts}")
    if sum(counts) > rows:
        raise ValueError(f"the splits of an alltoall sum up to {sum(counts)} of {rows} rows")
    return counts


# --- reducescatter -------------------------------------------------------------------------


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("reducescatter", name, process_set.process_set_id)
    return _scatter([tensor], named, ReduceOp(op), process_set, scales, True)


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    scales = (prescale_factor, postscale_factor)
    named = PROCESS.name("grouped_reducescatter", name, process_set.process_set_id)
    return _scatter(tensors, named, ReduceOp(op), process_set, scales, False)


def _scatter(
    tensors: Sequence[Tensor],
    name: str,
    op: ReduceOp,
    process_set: ProcessSet,
    scales: tuple[float, float],
    single: bool,
) -> int:
    check(*tensors)
    if op == Adasum:
        raise NotImplementedError("The Adasum reduction does not support reducescatter.")
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("reducescatter wants tensors with at least one dimension")
    asked = request(
        words.REDUCESCATTER,
        name,
        tensors,
        op=op.name.lower(),
        prescale=float(scales[0]),
        postscale=float(scales[1]),
        process_set=process_set,
    )
    given = [tensor.detach() for tensor in tensors]
    return PROCESS.submit(Work(asked, given, [], (lambda r: r[0]) if single else list))


# --- waiting -------------------------------------------------------------------------------


def poll(handle: int) -> bool:
    """Whether the collective is done; `synchronize` will not wait then."""
    return PROCESS.poll(handle)


def synchronize(handle: int) -> Any:
    """Wait for a collective, and give its result. None for a handle that nobody knows."""
    return PROCESS.synchronize(handle)


def join(device: int = -1) -> int:
    """This rank has no more data; it contributes zeros until all have joined. The last to join."""
    return int(PROCESS.do(Request("join", words.JOIN)))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    named = PROCESS.name("barrier", None, process_set.process_set_id)
    PROCESS.synchronize(
        PROCESS.submit(Work(request(words.BARRIER, named, [], process_set=process_set), [], []))
    )


def _tensor(result: Any) -> Tensor:
    assert isinstance(result, Tensor)
    return result
