"""`kungfu.torch`: collectives on tensors, optimizers that communicate, and a hook for torch loops.

The model and the optimizer that a KungFu optimizer was made for go to newcomers by themselves.
"""

from typing import NoReturn

from midflight.compat.aliasing import missing
from midflight.compat.kungfu.schedule import step_based_schedule
from midflight.compat.kungfu.torch import ops, optimizers
from midflight.compat.kungfu.torch.hook import ElasticHook
from midflight.compat.kungfu.torch.ops.collective import (
    all_gather,
    all_reduce,
    all_reduce_fn,
    broadcast,
    broadcast_parameters,
)

__all__ = [
    "ElasticHook",
    "all_gather",
    "all_reduce",
    "all_reduce_fn",
    "broadcast",
    "broadcast_parameters",
    "ops",
    "optimizers",
    "step_based_schedule",
]


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.torch", name)
