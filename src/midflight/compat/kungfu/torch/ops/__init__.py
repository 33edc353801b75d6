"""`kungfu.torch.ops`: collectives on tensors."""

from typing import NoReturn

from midflight.compat.aliasing import missing
from midflight.compat.kungfu.torch.ops.collective import (
    all_gather,
    all_reduce,
    all_reduce_fn,
    broadcast,
    broadcast_parameters,
    inplace_all_reduce_async_op,
    inplace_all_reduce_op,
    inplace_broadcast_async_op,
    wait_all_handles,
    wait_handle,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_fn",
    "broadcast",
    "broadcast_parameters",
    "inplace_all_reduce_async_op",
    "inplace_all_reduce_op",
    "inplace_broadcast_async_op",
    "wait_all_handles",
    "wait_handle",
]


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.torch.ops", name)
