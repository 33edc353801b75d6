"""The distributed optimizer on two ranks, against one process with the whole batch."""

import copy
import json
import os
import sys
import tempfile
import warnings

import horovod.torch as hvd
import pytest
import torch
from torch import nn

hvd.init()
RANK = hvd.rank()


def model(seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def data(step: int) -> torch.Tensor:
    torch.manual_seed(100 + step)
    return torch.randn(8, 6)


def weights(m: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in m.parameters()])


def agrees(make: object, tolerance: float = 1e-6, passes: int = 1, **options: object) -> None:
    """Six steps on halves of the batch come to what six steps on the whole come to."""
    whole, half = model(), model()
    reference = make(whole.parameters())
    optimizer = hvd.DistributedOptimizer(
        make(half.parameters()),
        named_parameters=half.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    assert (
        isinstance(optimizer, type(reference))
        and type(optimizer).__name__ == type(reference).__name__
    )
    for step in range(6):
        x = data(step)
        reference.zero_grad()
        whole(x).square().mean().backward()
        reference.step()
        optimizer.zero_grad()
        parts = x[4 * RANK : 4 * RANK + 4].chunk(passes)
        for part in parts:
            (half(part).square().mean() / passes).backward()
        optimizer.step()
    assert torch.allclose(weights(whole), weights(half), atol=tolerance), options
    both = hvd.allgather(weights(half)[None])
    assert torch.equal(both[0], both[1]), options


def sgd(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def options() -> None:
    agrees(sgd)
    agrees(lambda p: torch.optim.AdamW(p, lr=0.01))
    agrees(sgd, passes=2)
    agrees(sgd, gradient_predivide_factor=2.0)
    agrees(sgd, groups=2)
    agrees(sgd, num_groups=3)
    agrees(sgd, compression=hvd.Compression.fp16, tolerance=1e-3)
    agrees(lambda p: torch.optim.SGD(p, lr=0.05), op=hvd.Sum, tolerance=10.0)


def clipping() -> None:
    """Gradients are clipped between the exchange and the step, as for one process."""
    whole, half = model(), model()
    reference = sgd(whole.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(half.parameters()), half.named_parameters())
    for step in range(4):
        x = 5 * data(step)
        reference.zero_grad()
        whole(x).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
        reference.step()
        optimizer.zero_grad()
        half(x[4 * RANK : 4 * RANK + 4]).square().mean().backward()
        optimizer.synchronize()
        assert torch.allclose(nn.utils.clip_grad_norm_(half.parameters(), 0.1), norm) and norm > 0.1
        with optimizer.skip_synchronize():
            optimizer.step()
    assert torch.allclose(weights(whole), weights(half), atol=1e-6)


def joining() -> None:
    """Rank 0 has two batches and rank 1 four: rank 0's gradients are zeros from then on."""
    alone, net = model(), model()
    reference = sgd(alone.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    for step in range(4 if RANK else 2):
        optimizer.zero_grad()
        net(data(10 * step + RANK)).square().mean().backward()
        optimizer.step()
    assert hvd.join() == 1
    hvd.broadcast_parameters(net.state_dict(), root_rank=1)
    for step in range(4):
        reference.zero_grad()
        for rank in (0, 1) if step < 2 else (1,):
            (alone(data(10 * step + rank)).square().mean() / 2).backward()
        reference.step()
    assert torch.allclose(weights(net), weights(alone), atol=1e-6)


def unused() -> None:
    """Gradients of a parameter that one rank did not use count as zeros."""
    torch.manual_seed(1)
    parts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    optimizer = hvd.DistributedOptimizer(sgd(parts.parameters()), parts.named_parameters())
    parts[RANK](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    both = hvd.allgather(weights(parts)[None])
    assert torch.equal(both[0], both[1])


def sparse() -> None:
    for dense in (True, False):
        torch.manual_seed(1)
        embedding = nn.Embedding(5, 3, sparse=True)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(embedding.parameters(), lr=1.0),
            embedding.named_parameters(),
            sparse_as_dense=dense,
        )
        before = weights(embedding)
        embedding(torch.tensor([RANK, 4])).sum().backward()
        optimizer.step()
        moved = (before - weights(embedding)).view(5, 3)[:, 0]
        assert torch.allclose(moved, torch.tensor([0.5, 0.5, 0.0, 0.0, 1.0])), (dense, moved)

    torch.manual_seed(1)
    pair = nn.ModuleList([nn.Embedding(5, 3, sparse=True) for _ in range(2)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(list(pair.parameters()), lr=1.0), pair.named_parameters()
    )
    for used in ([0], [RANK], [0, 1]):
        optimizer.zero_grad()
        sum(pair[i](torch.tensor([RANK])).sum() for i in used).backward()
        optimizer.step()
        both = hvd.allgather(weights(pair)[None])
        assert torch.equal(both[0], both[1]), used


def sets() -> None:
    """An optimizer on a process set: the others train by themselves."""
    one = hvd.add_process_set([1])
    net = model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters(), process_set=one
    )
    for step in range(2):
        optimizer.zero_grad()
        (net(data(step)).sum() * (RANK + 1)).backward()
        optimizer.step()
    both = hvd.allgather(weights(net)[None])
    assert not torch.equal(both[0], both[1])
    hvd.remove_process_set(one)


def checks() -> None:
    net = model()
    with pytest.raises(ValueError, match="sequence of tuples"):
        hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=net.parameters())
    doubled = [("a", p) for p in net.parameters()]
    with pytest.raises(ValueError, match="Found duplicates: a"):
        hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=doubled)
    some = list(net.named_parameters())[1:]
    with pytest.raises(ValueError, match="were not named"):
        hvd.DistributedOptimizer(sgd(net.parameters()), named_parameters=some)
    with pytest.raises(ValueError, match="must be > 0"):
        hvd.DistributedOptimizer(sgd(net.parameters()), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        hvd.DistributedOptimizer(sgd(net.parameters()), op=hvd.Sum, gradient_predivide_factor=2.0)
    optimizer = hvd.DistributedOptimizer(sgd(net.parameters()), net.named_parameters())
    net(data(0)).sum().backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="more than backward_passes_per_step"):
        net(data(0)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with optimizer.skip_synchronize():
            optimizer.step()
        assert not caught
        optimizer.synchronize()
        optimizer.step()
        assert "skip_synchronize" in str(caught[0].message)
    optimizer.zero_grad(set_to_none=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    net(data(0)).sum().backward()
    optimizer.step()
    scheduler.step()


def states() -> None:
    """An optimizer's state reaches the others, and no parameter moves for it."""
    net = model(RANK)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.1 * (RANK + 1), momentum=0.9, weight_decay=0.1
    )
    if RANK == 0:
        net(data(0)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    before = weights(net)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert torch.equal(before, weights(net))
    assert optimizer.param_groups[0]["lr"] == 0.1
    momentum = optimizer.state[next(net.parameters())]["momentum_buffer"]
    both = hvd.allgather(momentum[None].contiguous())
    assert torch.equal(both[0], both[1]) and momentum.abs().sum() > 0
    fresh = model()
    fresh[0].requires_grad_(False)
    made = torch.optim.SGD(fresh.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(made, root_rank=0)  # scripts expect gradients from it, too
    assert fresh[0].weight.grad is None and not fresh[2].weight.grad.any()
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(net.parameters()), root_rank=0)
    with pytest.raises(ValueError, match="invalid params of type"):
        hvd.broadcast_parameters(7, root_rank=0)


def adasum() -> None:
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])
    mixed = hvd.allreduce(one if RANK == 0 else other, op=hvd.Adasum)
    assert torch.allclose(mixed, torch.tensor([1.0, 2.0]))  # orthogonal: added
    alike = hvd.allreduce(torch.tensor([2.0, 2.0]), op=hvd.Adasum)
    assert torch.allclose(alike, torch.tensor([2.0, 2.0]))  # the same: averaged
    net = model()
    optimizer = hvd.DistributedOptimizer(
        sgd(net.parameters()), net.named_parameters(), op=hvd.Adasum
    )
    start = copy.deepcopy(weights(net))
    for step in range(3):
        optimizer.zero_grad()
        net(data(10 * step + RANK)).square().mean().backward()
        optimizer.step()
    both = hvd.allgather(weights(net)[None])
    assert torch.equal(both[0], both[1]) and not torch.equal(start, weights(net))


def timeline() -> None:
    folder = tempfile.mkdtemp(dir=sys.argv[1])
    path = os.path.join(folder, "timeline.json")
    hvd.start_timeline(path)
    hvd.allreduce(torch.ones(2), name="seen")
    hvd.stop_timeline()
    with open(path) as file:
        events = json.load(file)
    assert any(event.get("name") == "ALLREDUCE" for event in events)
    assert any(event.get("args", {}).get("name") == "allreduce.seen" for event in events)


for part in (options, clipping, joining, unused, sparse, sets, checks, states, adasum, timeline):
    part()
    print(f"{part.__name__} holds", flush=True)
