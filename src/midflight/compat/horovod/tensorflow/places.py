"""Where this rank stands, as tensors: right also in graphs that outlive a change of the world."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common import basics
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import as_written, call


def _number(ask: Callable[[], int], name: str | None) -> Any:
    def work(_: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.tensor(ask(), dtype=torch.int32)]

    (result,) = call(work, [], [tf.TensorSpec([], tf.int32)])
    return result if name is None else tf.identity(result, name=name)


@as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(lambda: len(PROCESS.sets.ranks.get(process_set_id, ())), name)


@as_written
def rank_op(name: str | None = None) -> Any:
    return _number(basics.rank, name)


@as_written
def local_size_op(name: str | None = None) -> Any:
    return _number(basics.local_size, name)


@as_written
def local_rank_op(name: str | None = None) -> Any:
    return _number(basics.local_rank, name)


@as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    return _number(lambda: int(basics.rank() in PROCESS.sets.ranks.get(process_set_id, ())), name)
