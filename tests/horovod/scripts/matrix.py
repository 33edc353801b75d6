"""Every operation with every type of numbers and one to three dimensions, on three ranks.

What is wanted is computed in doubles from what all ranks are known to have.
"""

from collections.abc import Callable, Iterator
from typing import Any

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from torch import Tensor

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (*INTEGERS, *FLOATS)
REDUCED: dict[int, Callable[[Tensor], Tensor]] = {
    hvd.Sum: lambda all_: all_.sum(0),
    hvd.Average: lambda all_: all_.mean(0),
    hvd.Min: lambda all_: all_.amin(0),
    hvd.Max: lambda all_: all_.amax(0),
    hvd.Product: lambda all_: all_.prod(0),
}
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def same(found: Tensor, wanted: Tensor, dtype: torch.dtype, what: object) -> None:
    assert found.dtype == dtype, (what, found.dtype)
    assert found.shape == wanted.shape, (what, found.shape, wanted.shape)
    assert torch.equal(found.double(), wanted.double()), (what, found, wanted)


def of(rank: int, dims: int, rows: int = 4) -> Tensor:
    """Small and whole, and so is the mean over three ranks."""
    shape = (rows, 2, 3)[:dims]
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.double) % 3
    return numbers.view(shape) + 2 * rank % 3


def cases(dtypes: tuple[torch.dtype, ...]) -> Iterator[tuple[torch.dtype, int]]:
    return ((dtype, dims) for dtype in dtypes for dims in (1, 2, 3))


def reductions() -> None:
    for dtype, dims in cases(NUMBERS):
        mine = of(RANK, dims).to(dtype)
        every = torch.stack([of(rank, dims) for rank in range(SIZE)])
        for op, reduce in REDUCED.items():
            what, wanted = (op, dtype, dims), reduce(every)
            same(hvd.allreduce(mine, op=op), wanted, dtype, what)
            same(hvd.allreduce_(mine.clone(), op=op), wanted, dtype, what)
            pair = hvd.grouped_allreduce([mine, mine[:1]], op=op)
            same(pair[0], wanted, dtype, what)
            same(pair[1], wanted[:1], dtype, what)
            first, second = hvd.grouped_allreduce_([mine.clone(), mine.clone()], op=op)
            same(first, wanted, dtype, what)
            same(second, wanted, dtype, what)


def scattered() -> None:
    """The first ranks have one row more where they cannot have as many."""
    for dtype, dims in cases(NUMBERS):
        mine = of(RANK, dims).to(dtype)
        every = torch.stack([of(rank, dims) for rank in range(SIZE)])
        rows = {0: slice(0, 2), 1: slice(2, 3), 2: slice(3, 4)}[RANK]
        for op, reduce in REDUCED.items():
            what, wanted = (op, dtype, dims), reduce(every)[rows]
            same(hvd.reducescatter(mine, op=op), wanted, dtype, what)
            first, second = hvd.grouped_reducescatter([mine, mine], op=op)
            same(first, wanted, dtype, what)
            same(second, wanted, dtype, what)


def gathered() -> None:
    """As many rows on each rank, ragged, and none at all on one."""
    for dtype, dims in cases((*NUMBERS, torch.bool)):
        for counts in ((2, 2, 2), (1, 2, 3), (0, 3, 1)):
            every = [of(rank, dims, rows=count) for rank, count in enumerate(counts)]
            wanted = torch.cat(every).to(dtype)
            mine = every[RANK].to(dtype)
            what = (dtype, dims, counts)
            same(hvd.allgather(mine), wanted, dtype, what)
            first, second = hvd.grouped_allgather([mine, mine])
            same(first, wanted, dtype, what)
            same(second, wanted, dtype, what)


def broadcasts() -> None:
    for dtype, dims in cases((*NUMBERS, torch.bool)):
        for root in range(SIZE):
            wanted, mine = of(root, dims).to(dtype), of(RANK, dims).to(dtype)
            same(hvd.broadcast(mine, root), wanted, dtype, (dtype, dims, root))
            same(hvd.broadcast_(mine, root), wanted, dtype, (dtype, dims, root))


def exchanged() -> None:
    """Rank r sends r + 1 + s rows to rank s, or equal parts of all."""
    for dtype, dims in cases((*NUMBERS, torch.bool)):
        sent = [of(rank, dims, rows=3 * rank + 6).to(dtype) for rank in range(SIZE)]
        splits = [[rank + 1 + to for to in range(SIZE)] for rank in range(SIZE)]
        parts = [tensor.split(rows) for tensor, rows in zip(sent, splits, strict=True)]
        found, received = hvd.alltoall(sent[RANK], splits=torch.tensor(splits[RANK]))
        same(found, torch.cat([part[RANK] for part in parts]), dtype, (dtype, dims))
        same(received, torch.tensor([rows[RANK] for rows in splits]), received.dtype, "splits")
        even = [of(rank, dims, rows=6).to(dtype) for rank in range(SIZE)]
        wanted = torch.cat([tensor[2 * RANK : 2 * RANK + 2] for tensor in even])
        same(hvd.alltoall(even[RANK]), wanted, dtype, (dtype, dims))


def truths() -> None:
    """A sum of truths is true where any is, a product where all are."""
    mine = torch.tensor([RANK == 0, True, False])
    for op, wanted in (
        (hvd.Sum, [True, True, False]),
        (hvd.Max, [True, True, False]),
        (hvd.Min, [False, True, False]),
        (hvd.Product, [False, True, False]),
    ):
        assert hvd.allreduce(mine, op=op).tolist() == wanted, op
        assert hvd.reducescatter(mine, op=op).tolist() == [wanted[RANK]], op


def refused() -> None:
    """An operation that cannot be done is an error on every rank, and the next one is done."""
    mine, wrong = torch.ones(3, 2), HorovodInternalError
    later = torch.ones(3, RANK + 1)
    sizes = torch.ones(SIZE + 1, dtype=torch.int32)
    calls: tuple[tuple[Callable[[], Any], type[Exception], str], ...] = (
        (lambda: hvd.reducescatter(mine, op=hvd.Adasum), NotImplementedError, "Adasum"),
        (lambda: hvd.reducescatter(torch.tensor(1.0)), ValueError, "at least one dimension"),
        (lambda: hvd.allgather(later), wrong, "Mismatched allgather tensor shapes"),
        (lambda: hvd.allgather(torch.ones([2] * (RANK + 1))), wrong, "Mismatched allgather"),
        (lambda: hvd.broadcast(later, 0), wrong, "Mismatched broadcast tensor shapes"),
        (lambda: hvd.broadcast(mine, SIZE), wrong, "Invalid root rank 3"),
        (lambda: hvd.alltoall(torch.ones(3 * SIZE + 1)), wrong, "divide by 3 ranks, got 10"),
        (lambda: hvd.alltoall(torch.ones(3), sizes), wrong, "splits of the shape [3], got [4]"),
        (lambda: hvd.alltoall(later), wrong, "Mismatched alltoall tensor shapes"),
        (lambda: hvd.reducescatter(later), wrong, "Mismatched reducescatter tensor shapes"),
        (lambda: hvd.grouped_allreduce([mine] * (RANK + 1)), wrong, "Mismatched"),
    )
    for call, kind, words in calls:
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"wanted an error with {words!r}")
        same(hvd.allreduce(mine, op=hvd.Sum), SIZE * mine, mine.dtype, words)


for part in (reductions, truths, scattered, gathered, broadcasts, exchanged, refused):
    part()
    print(f"{part.__name__} holds", flush=True)
