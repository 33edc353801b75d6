"""The collectives of `horovod.torch`: in place or not, at once or later, one tensor or several.

Every call becomes one named request of the engine. A tensor that needs a gradient goes through
`autograd`. Signatures, defaults and messages are Horovod's.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ParamSpec

import torch
from torch import Tensor

from midflight.compat.horovod.common import basics
from midflight.compat.horovod.common.basics import *  # noqa: F403 - scripts look for them here
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import DTYPES, Work
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.engine.requests import Request

P = ParamSpec("P")


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


@dataclass(frozen=True)
class Reduction:
    """How the tensors of all ranks become one."""

    op: ReduceOp
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: ProcessSet = global_process_set

    def request(self, kind: str, name: str, tensors: Sequence[Tensor]) -> Request:
        return request(
            kind,
            name,
            tensors,
            op=self.op.name.lower(),
            prescale=float(self.prescale),
            postscale=float(self.postscale),
            process_set=self.process_set,
        )


def _check_adasum(tensors: Sequence[Tensor], process_set: ProcessSet) -> None:
    if process_set.process_set_id != global_process_set.process_set_id:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    ranks = PROCESS.standing.size
    if ranks & (ranks - 1):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")
    if not all(tensor.is_floating_point() for tensor in tensors):
        raise ValueError("Adasum wants floating point tensors")


def _at_once(name: str, begin: Callable[P, int]) -> Callable[P, Any]:
    """The same, with the result instead of a handle for it."""

    @functools.wraps(begin)
    def wait(*args: P.args, **kwargs: P.kwargs) -> Any:
        return synchronize(begin(*args, **kwargs))

    signature = inspect.signature(begin).replace(return_annotation=Any)
    wait.__signature__ = signature  # type: ignore[attr-defined] # what help() shows
    wait.__name__ = wait.__qualname__ = name
    return wait


# --- allreduce -----------------------------------------------------------------------------


def reduce(
    kind: str, tensors: Sequence[Tensor], name: str | None, how: Reduction, in_place: bool = False
) -> int:
    """For the list of results. `kind`: of the call, which names it if the caller does not."""
    named = PROCESS.name(kind, name, how.process_set.process_set_id)
    check(*tensors)
    if how.op == Adasum:
        _check_adasum(tensors, how.process_set)
    given = [tensor.detach() for tensor in tensors]
    results = list(tensors) if in_place else [torch.empty_like(tensor) for tensor in tensors]
    work = Work(
        how.request(words.ALLREDUCE, named, tensors),
        given,
        given if in_place else results,
        (lambda _: results[0]) if kind == "allreduce" else (lambda _: results),
    )
    return PROCESS.submit(work)


def _allreduce(in_place: bool) -> Callable[..., int]:
    def begin(  # noqa: PLR0913
        tensor: Tensor,
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        scales = (prescale_factor, postscale_factor)
        how = Reduction(chosen_op(op, average), *scales, process_set)
        return reduce("allreduce", [tensor], name, how, in_place)

    begin.__name__ = begin.__qualname__ = "allreduce_async_" if in_place else "allreduce_async"
    return begin


def _grouped_allreduce(in_place: bool) -> Callable[..., int]:
    def begin(  # noqa: PLR0913
        tensors: Sequence[Tensor],
        average: bool | None = None,
        name: str | None = None,
        op: int | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
    ) -> int:
        scales = (prescale_factor, postscale_factor)
        how = Reduction(chosen_op(op, average), *scales, process_set)
        return reduce("grouped_allreduce", tensors, name, how, in_place)

    begin.__name__ = f"grouped_allreduce_async{'_' if in_place else ''}"
    begin.__qualname__ = begin.__name__
    return begin


allreduce_async, allreduce_async_ = _allreduce(in_place=False), _allreduce(in_place=True)
allreduce_ = _at_once("allreduce_", allreduce_async_)
grouped_allreduce_async = _grouped_allreduce(in_place=False)
grouped_allreduce_async_ = _grouped_allreduce(in_place=True)
grouped_allreduce_ = _at_once("grouped_allreduce_", grouped_allreduce_async_)


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
    return _gather("allgather", [tensor], name, process_set)


def grouped_allgather_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    return _gather("grouped_allgather", tensors, name, process_set)


def _gather(kind: str, tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet) -> int:
    check(*tensors)
    rows = [t.detach().reshape(1) if t.dim() == 0 else t.detach() for t in tensors]
    named = PROCESS.name(kind, name, process_set.process_set_id)
    asked = request(words.ALLGATHER, named, rows, process_set=process_set)
    after = (lambda results: results[0]) if kind == "allgather" else list
    return PROCESS.submit(Work(asked, rows, [], after))


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


broadcast_ = _at_once("broadcast_", broadcast_async_)


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
    how = Reduction(ReduceOp(op), prescale_factor, postscale_factor, process_set)
    return scatter("reducescatter", [tensor], name, how)


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    how = Reduction(ReduceOp(op), prescale_factor, postscale_factor, process_set)
    return scatter("grouped_reducescatter", tensors, name, how)


def scatter(kind: str, tensors: Sequence[Tensor], name: str | None, how: Reduction) -> int:
    named = PROCESS.name(kind, name, how.process_set.process_set_id)
    check(*tensors)
    if how.op == Adasum:
        raise NotImplementedError("The Adasum reduction does not support reducescatter.")
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("reducescatter wants tensors with at least one dimension")
    asked = how.request(words.REDUCESCATTER, named, tensors)
    given = [tensor.detach() for tensor in tensors]
    after = (lambda results: results[0]) if kind == "reducescatter" else list
    return PROCESS.submit(Work(asked, given, [], after))


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


__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather_async", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall_async", "barrier", "broadcast_",
    "broadcast_async", "broadcast_async_", "grouped_allgather_async", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter_async", "join",
    "poll", "reducescatter_async", "sparse_allreduce_async", "synchronize",
]  # fmt: skip
__all__ += basics.__all__
