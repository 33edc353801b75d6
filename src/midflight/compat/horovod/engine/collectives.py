"""The collectives themselves, on a group of the runtime, as the tally has ordered them.

Allreduces that were told together share one buffer per kind of tensor. Types that gloo cannot
reduce are reduced in a wider one; what is only moved is moved as bytes, of whatever type it is.
Ragged gathers are padded to the longest. Whatever waits, waits in a way that a cut ends.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from midflight.compat.horovod.engine.requests import Request, Response
from midflight.runtime.group.process_group import Group
from midflight.runtime.torch_private import copy_each, flatten, unflatten

_OPS: dict[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "average": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}
_WIDER = {torch.bfloat16: torch.float32, torch.bool: torch.uint8, torch.int16: torch.int32}
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}


@dataclass
class Work:
    """One named collective of this member, from the call to its result."""

    request: Request
    tensors: list[Tensor]  # what this member gives
    outputs: list[Tensor]  # where results go; empty: their size is known only later
    after: Callable[[Any], Any] | None = None  # what the caller makes of the results
    steady: bool = False  # the same request comes in every step, with tensors of one kind
    ready: Any = None  # a CUDA event: the tensors are complete
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    result: Any = None

    def succeed(self, result: Any) -> None:
        if self.ready is not None:  # whoever waits uses another stream than this thread
            torch.cuda.current_stream().synchronize()
        self.result = result
        self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()


def allreduce(group: Group, works: Sequence[Work], threshold: int) -> None:
    """Reduce everything that was told together, in as few transfers as the kinds allow."""
    kinds: dict[tuple[Any, ...], list[tuple[Tensor, Tensor]]] = {}
    for work in works:
        request = work.request
        if work.steady and request.op != "adasum":
            pairs = list(zip(work.tensors, work.outputs, strict=True))
            _reduce_fused(group, pairs, request.op, request.prescale, request.postscale)
            continue
        for given, output in zip(work.tensors, work.outputs, strict=True):
            key = (given.dtype, given.device, request.op, request.prescale, request.postscale)
            kinds.setdefault(key, []).append((given, output))
    for (_, _, op, prescale, postscale), pairs in kinds.items():
        for part in _parts(pairs, threshold):
            if op == "adasum":
                for given, output in part:
                    output.copy_(_adasum(group, _scaled(given, prescale)))
                    _scale(output, postscale)
            else:
                _reduce_fused(group, part, op, prescale, postscale)
    for work in works:
        work.succeed(work.outputs)


def _parts(pairs: list[tuple[Tensor, Tensor]], threshold: int) -> list[list[tuple[Tensor, Tensor]]]:
    parts: list[list[tuple[Tensor, Tensor]]] = [[]]
    size = 0
    for pair in pairs:
        width = pair[0].numel() * pair[0].element_size()
        if parts[-1] and size + width > threshold:
            parts.append([])
            size = 0
        parts[-1].append(pair)
        size += width
    return parts


def _reduce_fused(
    group: Group, pairs: list[tuple[Tensor, Tensor]], op: str, prescale: float, postscale: float
) -> None:
    if len(pairs) == 1 and pairs[0][1].is_contiguous():
        given, output = pairs[0]
        if given is not output:
            output.copy_(given)
        _reduce(group, output, op, prescale, postscale)
        return
    outputs = [output for _, output in pairs]
    flat = flatten([given for given, _ in pairs])
    _reduce(group, flat, op, prescale, postscale)
    copy_each(outputs, unflatten(flat, outputs))


def _reduce(group: Group, tensor: Tensor, op: str, prescale: float, postscale: float) -> None:
    """In place, scaled before and after."""
    _scale(tensor, prescale)
    if group.pg is not None and tensor.numel():
        wide = _WIDER.get(tensor.dtype)
        buffer = tensor.to(wide) if wide is not None else tensor
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]
        group.waits.wait(group.pg.allreduce([buffer], options), buffer)
        if buffer is not tensor:
            if op == "average":
                _divide(buffer, group.size)
            tensor.copy_(buffer)
        elif op == "average":
            _divide(tensor, group.size)
    _scale(tensor, postscale)


def _divide(tensor: Tensor, size: int) -> None:
    if tensor.is_floating_point():
        tensor.div_(size)
    else:
        tensor.div_(size, rounding_mode="trunc")


def _scale(tensor: Tensor, factor: float) -> None:
    if factor == 1.0:
        return
    if tensor.is_floating_point():
        tensor.mul_(factor)
    else:
        tensor.copy_((tensor.double() * factor).to(tensor.dtype))


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1.0 else tensor * factor


def _adasum(group: Group, tensor: Tensor) -> Tensor:
    return adasum(_gather_equal(group, tensor.contiguous()))


def _bytes(tensor: Tensor) -> Tensor:
    """The memory of a contiguous tensor that is not empty, row by row."""
    rows = tensor.shape[0] if tensor.dim() else 1
    width = tensor.numel() // rows
    # Not a view: where a side is 1, its stride may be anything, and a view would keep it.
    return tensor.as_strided((rows, width), (width, 1)).view(torch.uint8)


def _gather_equal(group: Group, tensor: Tensor) -> list[Tensor]:
    """Everybody's tensor, by rank; all of one shape."""
    if group.pg is None or not tensor.numel():
        return [tensor] * group.size
    theirs = [torch.empty_like(tensor) for _ in range(group.size)]
    given = _bytes(tensor)
    group.waits.wait(group.pg.allgather([[_bytes(t) for t in theirs]], [given]), given)
    return theirs


def allgather(group: Group, work: Work, response: Response) -> None:
    """Rows of all members one after the other, however many each has."""
    results = []
    for given, rows in zip(work.tensors, response.rows, strict=True):
        longest = max(rows)
        if longest == 0:
            results.append(given.clone())
            continue
        padded = given
        if given.shape[0] < longest:
            padded = given.new_zeros((longest, *given.shape[1:]))
            padded[: given.shape[0]].copy_(given)
        parts = _gather_equal(group, padded.contiguous())
        kept = [part[:count] for part, count in zip(parts, rows, strict=True)]
        results.append(torch.cat(kept))
    work.succeed(results)


def broadcast(group: Group, work: Work, root: int) -> None:
    """`root` is a rank of this group."""
    for given, output in zip(work.tensors, work.outputs, strict=True):
        if given is not output and group.rank == root:
            output.copy_(given)
        if group.pg is not None and output.numel():
            whole = output.contiguous()
            group.broadcast(_bytes(whole), root)
            if whole is not output:
                output.copy_(whole)
    work.succeed(work.outputs)


def alltoall(group: Group, work: Work, splits: Sequence[Sequence[int]]) -> None:
    """The result, and how many rows came from whom."""
    (given,) = work.tensors
    sent = list(splits[group.rank])
    received = [theirs[group.rank] for theirs in splits]
    if group.pg is None:
        work.succeed((given.clone(), torch.tensor(received, dtype=torch.int32)))
        return
    output = given.new_empty((sum(received), *given.shape[1:]))
    width = given.element_size() * math.prod(given.shape[1:])
    if width:
        whole, into = (_row_bytes(tensor, width) for tensor in (given.contiguous(), output))
        transfer = group.pg.alltoall_base(into, whole, received, sent, dist.AllToAllOptions())
        group.waits.wait(transfer, into)
    work.succeed((output, torch.tensor(received, dtype=torch.int32)))


def _row_bytes(tensor: Tensor, width: int) -> Tensor:
    """The same memory as so many bytes a row; also of a tensor without rows."""
    if not tensor.numel():
        return torch.empty((0, width), dtype=torch.uint8, device=tensor.device)
    return _bytes(tensor)


def reducescatter(group: Group, work: Work) -> None:
    """Each rank keeps its rows of the sum; the first ranks have the rows that are left over."""
    request = work.request
    results = []
    for given in work.tensors:
        whole = given.clone()
        _reduce(group, whole, request.op, request.prescale, request.postscale)
        rows, rest = divmod(whole.shape[0], group.size)
        counts = [rows + (rank < rest) for rank in range(group.size)]
        start = sum(counts[: group.rank])
        results.append(whole[start : start + counts[group.rank]].clone())
    work.succeed(results)


def zeros_for(request: Request) -> Work:
    """What a member that has joined contributes."""
    tensors = [
        torch.zeros(shape, dtype=DTYPES[dtype], device=request.device)
        for shape, dtype in zip(request.shapes, request.dtypes, strict=True)
    ]
    return Work(request, tensors, tensors)


def adasum(vectors: Sequence[Tensor]) -> Tensor:
    level = list(vectors)
    if len(level) & (len(level) - 1):
        raise NotImplementedError(
            f"Running Adasum with non-power of 2 ranks is not supported yet, there are {len(level)}"
        )
    while len(level) > 1:
        level = [_pair(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def _pair(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.reshape(-1).double(), b.reshape(-1).double()
    dot, xx, yy = torch.dot(x, y), torch.dot(x, x), torch.dot(y, y)
    left = 1 - dot / (2 * xx) if xx > 0 else 1.0
    right = 1 - dot / (2 * yy) if yy > 0 else 1.0
    return (left * x + right * y).to(a.dtype).reshape(a.shape)
