"""Each worker checks KungFu's collectives and optimizers against what it computes alone."""

import random

import kungfu.python as kfpy
import kungfu.torch as kf
import torch
from kungfu.python.elastic_state import ElasticContext, ElasticState
from torch import Tensor

STEPS = 4


def gradient(rank: int, step: int) -> Tensor:
    return torch.randn(3, 2, generator=torch.Generator().manual_seed(100 * rank + step))


def together(make: object, size: int, **options: object) -> Tensor:
    """This worker's weights after a few steps of a KungFu optimizer."""
    weight = torch.nn.Parameter(torch.full((3, 2), float(kfpy.current_rank())))
    sgd = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    optimizer = make(sgd, [("w", weight)], **options)  # type: ignore[operator]
    assert isinstance(optimizer, torch.optim.SGD)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for step in range(STEPS):
        weight.grad = gradient(kfpy.current_rank(), step)
        optimizer.step()
        scheduler.step()
    return weight.detach()


def alone(size: int, mix: object, average: object) -> list[Tensor]:
    """All workers' weights, computed in one process: mix models, apply averaged gradients."""
    weights = [torch.nn.Parameter(torch.full((3, 2), float(rank))) for rank in range(size)]
    optimizers = [torch.optim.SGD([weight], lr=0.1, momentum=0.9) for weight in weights]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 2) for optimizer in optimizers]
    for step in range(STEPS):
        mixed = mix([w.detach().clone() for w in weights], step)  # type: ignore[operator]
        gradients = average([gradient(rank, step) for rank in range(size)])  # type: ignore[operator]
        for rank, weight in enumerate(weights):
            weight.data.copy_(mixed[rank])
            weight.grad = gradients[rank]
            optimizers[rank].step()
            schedulers[rank].step()
    return [weight.detach() for weight in weights]


def same(tensors: list[Tensor], _: int = 0) -> list[Tensor]:
    return tensors


def mean(tensors: list[Tensor], _: int = 0) -> list[Tensor]:
    return [torch.stack(tensors).mean(0)] * len(tensors)


def added(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.stack(tensors).sum(0)] * len(tensors)


def pairs(base: int) -> object:
    def mix(models: list[Tensor], step: int) -> list[Tensor]:
        ranks = list(range(len(models)))
        random.Random(f"7-{base + step}").shuffle(ranks)
        mixed = list(models)
        for one, other in zip(ranks[::2], ranks[1::2], strict=False):
            mixed[one] = mixed[other] = (models[one] + models[other]) / 2
        return mixed

    return mix


def check(name: str, found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted)
    print(f"{name} agrees", flush=True)


rank, size = kfpy.current_rank(), kfpy.current_size()
assert (kfpy.current_local_rank(), kfpy.current_local_size()) == (rank, size)
optimizers = kf.optimizers
check("sgd", together(optimizers.SynchronousSGDOptimizer, size), alone(size, same, mean)[rank])
check(
    "sum",
    together(optimizers.SynchronousSGDOptimizer, size, op="sum"),
    alone(size, same, added)[rank],
)
check(
    "sma", together(optimizers.SynchronousAveragingOptimizer, size), alone(size, mean, same)[rank]
)
check(
    "pairs",
    together(optimizers.PairAveragingOptimizer, size, seed=7),
    alone(size, pairs(3 * STEPS), same)[rank],
)

mine = torch.arange(4.0) + rank
check("all_reduce", kf.all_reduce_fn(mine), torch.arange(4.0) * size + sum(range(size)))
check("max", kf.all_reduce(mine, op="max"), torch.arange(4.0) + size - 1)
check("gather", kf.all_gather(mine), torch.stack([torch.arange(4.0) + r for r in range(size)]))
check("broadcast", kf.broadcast(mine, root=1), torch.arange(4.0) + 1)
state = {"w": mine.clone(), "flag": torch.tensor(rank == 0), "count": torch.tensor(rank), "n": 3}
kf.broadcast_parameters(state)
check("parameters", state["w"], torch.arange(4.0))
assert bool(state["flag"]) and int(state["count"]) == 0
assert kfpy.all_reduce_int_sum(rank) == sum(range(size))
assert kfpy.all_reduce_int_min(rank) == 0
kfpy.run_barrier()

progress = ElasticState(max_progress=6)
while not progress.stopped():
    with ElasticContext(progress, delta_progress=2) as should_sync:
        assert should_sync == (progress.progress == 0)
assert (progress.stop_reason(), kfpy.progress()) == ("finished", 6)
assert not kfpy.detached()
print("all of it agrees", flush=True)
