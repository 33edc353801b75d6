"""`kungfu.torch.optimizers`: wrap a torch optimizer, and its steps are the cluster's."""

from typing import NoReturn

from midflight.compat.aliasing import missing
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


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.torch.optimizers", name)
