"""`kungfu.torch.optimizers`: wrap a torch optimizer, and its steps are the cluster's."""

from midflight.compat.kungfu.torch.optimizers.algorithms import (
    PairAveragingOptimizer,
    SynchronousAveragingOptimizer,
    SynchronousSGDOptimizer,
)

__all__ = [
    "PairAveragingOptimizer",
    "SynchronousAveragingOptimizer",
    "SynchronousSGDOptimizer",
]
