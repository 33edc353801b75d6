"""Every collective on three ranks, each checked against what it has to be."""

import horovod.torch as hvd
import pytest
import torch
from horovod.common.exceptions import HorovodInternalError

DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert (SIZE, hvd.local_size(), hvd.local_rank()) == (3, 3, RANK)
assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)


def same(one: torch.Tensor, other: object) -> None:
    wanted = other if isinstance(other, torch.Tensor) else torch.tensor(other)
    assert one.shape == wanted.shape and torch.allclose(one.double(), wanted.double()), (one, other)


def reductions() -> None:
    x = torch.tensor([1.0, 2.0]) * (RANK + 1)
    same(hvd.allreduce(x), [2.0, 4.0])
    same(hvd.allreduce(x, op=hvd.Sum), [6.0, 12.0])
    same(hvd.allreduce(x, op=hvd.Min), [1.0, 2.0])
    same(hvd.allreduce(x, op=hvd.Max), [3.0, 6.0])
    same(hvd.allreduce(x, op=hvd.Product), [6.0, 48.0])
    same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=10.0), [30.0, 60.0])
    same(hvd.allreduce(x, average=False), [6.0, 12.0])
    same(x, torch.tensor([1.0, 2.0]) * (RANK + 1))  # not in place
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float64):
        same(hvd.allreduce(torch.ones(3, dtype=dtype), op=hvd.Sum), [3, 3, 3])
    same(hvd.allreduce(torch.ones(2, dtype=torch.bfloat16), op=hvd.Sum), [3, 3])
    same(hvd.allreduce(torch.tensor([10, 20])), [10, 20])
    same(hvd.allreduce(x, compression=hvd.Compression.fp16), [2.0, 4.0])
    y = x.clone()
    assert hvd.allreduce_(y, op=hvd.Sum) is y
    same(y, [6.0, 12.0])
    groups = hvd.grouped_allreduce([x, torch.ones(2, 2, dtype=torch.int64)], op=hvd.Sum)
    same(groups[0], [6.0, 12.0])
    same(groups[1], [[3, 3], [3, 3]])
    same(hvd.allreduce(torch.tensor(float(RANK))), 1.0)
    same(hvd.allreduce(torch.empty(0), op=hvd.Sum), torch.empty(0))


def names() -> None:
    """Ranks ask in different orders, and wait for one before they ask for the other."""
    x = torch.ones(2) * (RANK + 1)
    if RANK == 1:
        same(hvd.allreduce(10 * x, name="b", op=hvd.Sum), [60.0, 60.0])
        same(hvd.allreduce(x, name="a", op=hvd.Sum), [6.0, 6.0])
    else:
        first = hvd.allreduce_async(x, name="a", op=hvd.Sum)
        second = hvd.allreduce_async(10 * x, name="b", op=hvd.Sum)
        same(hvd.synchronize(second), [60.0, 60.0])
        same(hvd.synchronize(first), [6.0, 6.0])
        assert hvd.synchronize(first) is None and hvd.poll(first)
    many = [hvd.allreduce_async_(torch.ones(5) * i, name=f"m{i}", op=hvd.Sum) for i in range(100)]
    for i, handle in enumerate(many if RANK else reversed(many)):
        number = i if RANK else 99 - i
        same(hvd.synchronize(handle), torch.ones(5) * 3 * number)


def wrong() -> None:
    """Wrong requests are refused everywhere, and the ranks go on."""
    with pytest.raises(ValueError, match="shapes"):
        hvd.allreduce(torch.ones(2 + RANK), name="shape")
    with pytest.raises(HorovodInternalError, match="data type"):
        hvd.allreduce(torch.ones(2, dtype=torch.int32 if RANK else torch.float32), name="type")
    with pytest.raises(HorovodInternalError, match="root rank"):
        hvd.broadcast(torch.ones(2), root_rank=RANK, name="root")
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="contiguous"):
        hvd.allreduce_(torch.ones(3, 2).t())
    with pytest.raises(ValueError, match="is not supported"):
        hvd.allreduce_(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(NotImplementedError, match="power of 2"):
        hvd.allreduce(torch.ones(3), op=hvd.Adasum)
    for bad in (torch.ones(3), torch.tensor([[1, 1, 1]]), torch.tensor([1, -1, 1])):
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(torch.ones(3), splits=bad)
    with pytest.raises(ValueError, match="at least one dimension"):
        hvd.alltoall(torch.tensor(1.0))
    rows = torch.tensor([9, 9, 9] if RANK == 1 else [1, 1, 1])
    with pytest.raises(ValueError, match="27 of 3 rows"):  # said by one rank, heard by all
        hvd.alltoall(torch.ones(3), splits=rows)
    if RANK == 0:  # before the others ask, so that the first one is still in flight
        handle = hvd.allreduce_async(torch.ones(1), name="twice")
        with pytest.raises(HorovodInternalError, match="same name"):
            hvd.allreduce_async(torch.ones(1), name="twice")
        hvd.barrier()
        hvd.synchronize(handle)
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(1), name="twice")


def gathering() -> None:
    ragged = torch.full((RANK + 1, 2), RANK)
    same(hvd.allgather(ragged), [[0, 0], [1, 1], [1, 1], [2, 2], [2, 2], [2, 2]])
    nothing = torch.ones(RANK)  # rank 0 has no row at all
    same(hvd.allgather(nothing), [1.0, 1.0, 1.0])
    first, second = hvd.grouped_allgather([torch.tensor([RANK]), torch.full((RANK, 1), RANK)])
    same(first, [0, 1, 2])
    same(second, [[1], [2], [2]])
    same(hvd.broadcast(torch.tensor([RANK, 7]), root_rank=2), [2, 7])
    y = torch.tensor([float(RANK)])
    assert hvd.broadcast_(y, root_rank=1) is y and y.item() == 1.0
    wanted = [i + 10 * rank for rank in range(3) for i in (2 * RANK, 2 * RANK + 1)]
    same(hvd.alltoall(torch.arange(6) + 10 * RANK), wanted)
    for dtype in DTYPES:
        ones = torch.ones(3, 2, dtype=dtype)
        for result in (hvd.alltoall(ones), hvd.allgather(ones[:1]), hvd.broadcast(ones, 1)):
            assert result.dtype == dtype
            same(result, torch.ones(3, 2))
    splits = torch.tensor([RANK, 1, 0])
    got, counts = hvd.alltoall(torch.full((RANK + 1,), RANK), splits=splits)
    same(counts, {0: [0, 1, 2], 1: [1, 1, 1], 2: [0, 0, 0]}[RANK])
    same(got, {0: [1, 2, 2], 1: [0, 1, 2], 2: torch.empty(0, dtype=torch.int64)}[RANK])
    rows = torch.arange(5.0)
    same(hvd.reducescatter(rows, op=hvd.Sum), [[0.0, 3.0], [6.0, 9.0], [12.0]][RANK])
    same(hvd.grouped_reducescatter([rows[:3].clone()])[0], [float(RANK)])
    sparse = torch.sparse_coo_tensor(torch.tensor([[RANK, 3]]), torch.tensor([1.0, 2.0]), (4,))
    same(hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)().to_dense(), [1.0, 1.0, 1.0, 6.0])
    value = {"epoch": RANK, "list": [1, (2, None)], "weights": torch.ones(2) * RANK}
    got_value = hvd.broadcast_object(value, root_rank=1)
    assert got_value["epoch"] == 1 and got_value["list"] == [1, (2, None)]
    same(got_value["weights"], [1.0, 1.0])
    assert hvd.allgather_object({"r": RANK}) == [{"r": 0}, {"r": 1}, {"r": 2}]
    pairs = [("a", torch.ones(2) * RANK), ("b", torch.ones(2, 2).t() * RANK)]
    hvd.broadcast_parameters(pairs, root_rank=2)
    same(pairs[1][1], [[2.0, 2.0], [2.0, 2.0]])


def gradients() -> None:
    x = torch.ones(2, requires_grad=True)
    (hvd.allreduce(x * (RANK + 1), op=hvd.Sum) * (RANK + 1)).sum().backward()
    same(x.grad, torch.ones(2) * 6 * (RANK + 1))
    y = torch.ones(RANK + 1, requires_grad=True)
    (hvd.allgather(y) * torch.arange(6.0)).sum().backward()
    same(y.grad, {0: [0.0], 1: [1.0, 2.0], 2: [3.0, 4.0, 5.0]}[RANK])
    z = torch.ones(1, requires_grad=True)
    (hvd.broadcast(z, root_rank=1) * (RANK + 1)).sum().backward()
    same(z.grad, [2.0] if RANK == 1 else [0.0])
    a = torch.ones(3, requires_grad=True)
    (hvd.alltoall(a) * (RANK + 1)).sum().backward()
    same(a.grad, [1.0, 2.0, 3.0])
    b = torch.ones(3, requires_grad=True)
    (hvd.reducescatter(b, op=hvd.Average) * (RANK + 1)).sum().backward()
    same(b.grad, [1.0, 2.0, 3.0])


def some() -> None:
    """Process sets, join."""
    two = hvd.add_process_set([0, 2])
    assert two.size() == 2 and two.included() == (RANK != 1) and two.rank() == [0, -1, 1][RANK]
    if two.included():
        same(hvd.allreduce(torch.ones(2) * RANK, op=hvd.Sum, process_set=two), [2.0, 2.0])
        same(hvd.allgather(torch.tensor([RANK]), process_set=two), [0, 2])
        same(hvd.broadcast(torch.tensor([RANK]), root_rank=2, process_set=two), [2])
        assert hvd.allgather_object(RANK, process_set=two) == [0, 2]
    else:
        with pytest.raises(ValueError, match="process set"):
            hvd.allreduce(torch.ones(1), process_set=two)
    same(hvd.allreduce(torch.ones(1), op=hvd.Sum), [3.0])
    assert hvd.remove_process_set(two)
    for turn in range(RANK):  # rank 0 has no data, rank 1 one batch, rank 2 two
        same(hvd.allreduce(torch.ones(2), name=f"turn{turn}", op=hvd.Sum), [2.0 - turn] * 2)
    assert hvd.join() == 2


class Normalised(torch.nn.Module):
    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.norm(x)
        return result


def batch_norm() -> None:
    torch.manual_seed(7)
    whole = torch.randn(9, 4, 2)
    own = whole[[0, 1], ...] if RANK == 0 else whole[2:5] if RANK == 1 else whole[5:]
    ours, theirs = hvd.SyncBatchNorm(4), torch.nn.BatchNorm1d(4)
    own = own.clone().requires_grad_()
    reference = whole.clone().requires_grad_()
    (ours(own) ** 3).sum().backward()
    (theirs(reference) ** 3).sum().backward()
    rows = slice(0, 2) if RANK == 0 else slice(2, 5) if RANK == 1 else slice(5, 9)
    assert reference.grad is not None and own.grad is not None
    assert torch.allclose(own.grad, reference.grad[rows], atol=1e-5)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-6)


for part in (reductions, names, wrong, gathering, gradients, some, batch_norm):
    part()
    print(f"{part.__name__} holds", flush=True)
try:
    hvd.max_size  # noqa: B018
except AttributeError as error:
    assert "max_size" in str(error) and "docs/" in str(error)
    print("missing names are named", flush=True)
