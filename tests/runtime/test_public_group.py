"""The group that scripts get, two ranks in two threads: it computes what gloo's own does, and no
wait in it outlasts the cut, even where gloo itself would wait for ever."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from midflight.errors import WorldChanged
from midflight.runtime import torch_private
from midflight.runtime.group.public_group import cuttable
from midflight.runtime.group.waits import Waits

SECONDS = 30.0
pytestmark = pytest.mark.skipif(
    not torch_private.PYTHON_WORKS, reason="this torch cannot hold works made in Python"
)


class Rank:
    def __init__(self, store: Any, rank: int) -> None:
        self.waits = Waits()
        gloo = torch_private.gloo_backend(store, rank, 2, "127.0.0.1", SECONDS)
        own: Any = dist.ProcessGroup(store, rank, 2)
        torch_private.assemble(own, "both", {"cpu": ("gloo", gloo)}, "gloo")
        self.raw = own
        self.group = cuttable(own, gloo, self.waits)


@pytest.fixture
def ranks() -> Iterator[tuple[Rank, Rank]]:
    store = dist.HashStore()
    first, second = both(lambda rank: Rank(store, rank))
    assert first.group is not first.raw
    yield first, second


def both(work: Callable[[int], Any]) -> tuple[Any, Any]:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, (0, 1), timeout=SECONDS)
    return first, second


def numbers(start: float, count: int = 4) -> torch.Tensor:
    return torch.arange(start, start + count, dtype=torch.float32)


def gradients(group: Any, rank: int) -> list[torch.Tensor]:
    """Of a model that is made anew on each rank, with buffers, over some steps."""
    seeds = torch.Generator().manual_seed(rank)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=seeds))
    wrapped = DistributedDataParallel(model, process_group=group)
    for _ in range(3):
        wrapped(torch.rand(6, 8, generator=seeds)).sum().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_a_scripts_own_ddp_computes_the_same_as_on_gloos_own_group(
    ranks: tuple[Rank, Rank],
) -> None:
    ours, others = both(lambda rank: gradients(ranks[rank].group, rank))
    usual, _ = both(lambda rank: gradients(ranks[rank].raw, rank))
    for mine, yours, theirs in zip(ours, usual, others, strict=True):
        assert torch.equal(mine, yours)
        assert torch.equal(mine, theirs)


OPERATIONS: dict[str, Callable[[Any, int], torch.Tensor]] = {}


def operation(work: Callable[[Any, int], torch.Tensor]) -> Callable[[Any, int], torch.Tensor]:
    OPERATIONS[work.__name__] = work
    return work


@operation
def allreduce(group: Any, rank: int) -> torch.Tensor:
    tensor = numbers(rank)
    group.allreduce([tensor]).wait()
    return tensor


@operation
def allreduce_coalesced(group: Any, rank: int) -> torch.Tensor:
    tensors = [numbers(rank), numbers(10 + rank)]
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    return torch.cat(tensors)


@operation
def broadcast(group: Any, rank: int) -> torch.Tensor:
    tensor = numbers(rank)
    group.broadcast(tensor, root=1).wait()
    return tensor


@operation
def allgather(group: Any, rank: int) -> torch.Tensor:
    found = [numbers(0), numbers(0)]
    group.allgather([found], [numbers(7 * rank)]).wait()
    return torch.cat(found)


@operation
def _allgather_base(group: Any, rank: int) -> torch.Tensor:
    found = numbers(0, 8)
    group._allgather_base(
        found, numbers(7 * rank), torch._C._distributed_c10d.AllgatherOptions()
    ).wait()
    return found


@operation
def reduce_scatter(group: Any, rank: int) -> torch.Tensor:
    found = numbers(0)
    group.reduce_scatter([found], [[numbers(rank), numbers(9)]], dist.ReduceScatterOptions()).wait()
    return found


@operation
def alltoall_base(group: Any, rank: int) -> torch.Tensor:
    found = numbers(0)
    group.alltoall_base(found, numbers(5 * rank), [], [], dist.AllToAllOptions()).wait()
    return found


@operation
def send_and_recv(group: Any, rank: int) -> torch.Tensor:
    found = numbers(0)
    if rank == 0:
        group.send([numbers(3)], 1, 0).wait()
    else:
        group.recv([found], 0, 0).wait()
    return found


@operation
def barrier(group: Any, rank: int) -> torch.Tensor:
    group.barrier().wait()
    return numbers(0)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_gives_what_gloos_own_gives(ranks: tuple[Rank, Rank], name: str) -> None:
    work = OPERATIONS[name]
    ours = both(lambda rank: work(ranks[rank].group, rank))
    usual = both(lambda rank: work(ranks[rank].raw, rank))
    assert all(torch.equal(mine, yours) for mine, yours in zip(ours, usual, strict=True))


def stuck_until_the_cut(waiting: Rank, work: Callable[[], object]) -> BaseException:
    """Nothing happens to any socket; the error that ends the wait."""
    found: list[BaseException | None] = []

    def wait() -> None:
        try:
            work()
            found.append(None)
        except Exception as error:  # noqa: BLE001 - looked at below
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), f"it should be waiting: {found}"
    waiting.waits.end()
    thread.join(SECONDS)
    [error] = found
    assert error is not None
    assert "the group was cut" in str(error)
    assert waiting.waits.stuck
    return error


@pytest.mark.parametrize("name", ["allreduce", "send_and_recv", "barrier"])
def test_the_cut_ends_a_wait_that_gloo_would_not(ranks: tuple[Rank, Rank], name: str) -> None:
    work, number = OPERATIONS[name], 1 if name == "send_and_recv" else 0
    waiting, late = ranks[number], ranks[1 - number]
    error = stuck_until_the_cut(waiting, lambda: work(waiting.group, number))
    assert isinstance(error, WorldChanged)
    work(late.raw, 1 - number)  # it comes after all, and nothing is left inside gloo


def test_the_cut_ends_the_backward_pass_of_a_scripts_own_ddp(ranks: tuple[Rank, Rank]) -> None:
    waiting, late = ranks
    groups = (waiting.group, late.raw)
    first, second = both(
        lambda rank: DistributedDataParallel(nn.Linear(4, 1), process_group=groups[rank])
    )
    error = stuck_until_the_cut(waiting, lambda: first(numbers(1)).backward())
    assert isinstance(error, RuntimeError)  # from inside torch, as one of gloo's own would be
    second(numbers(1)).backward()
