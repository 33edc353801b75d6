"""`horovod.tensorflow.keras`: what scripts that train with `model.fit` use."""

from typing import Any

import tensorflow as tf

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common import basics, process_sets
from midflight.compat.horovod.common.basics import *  # noqa: F403
from midflight.compat.horovod.common.process_sets import *  # noqa: F403
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.tensorflow import (
    Adasum,
    Average,
    Compression,
    HorovodInternalError,
    Max,
    Min,
    Product,
    Sum,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
    mpi_ops,
    optimizer,
)
from midflight.compat.horovod.tensorflow.keras import callbacks, elastic
from midflight.compat.keras_versions import keras


def DistributedOptimizer(  # noqa: PLR0913
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    return _distributed(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


_distributed = optimizer.DistributedOptimizer
PartialDistributedOptimizer = optimizer.PartialDistributedOptimizer


def allreduce(  # noqa: PLR0913
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    return mpi_ops.allreduce(
        tf.convert_to_tensor(value),
        average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    return mpi_ops.allgather(tf.convert_to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    return mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    return mpi_ops.reducescatter(tf.convert_to_tensor(value), op=op, name=name)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
) -> Any:
    """A saved model, whose optimizer goes on from its state, with the gradients of all ranks."""
    known = {kind.__name__: kind for kind in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
        model.jit_compile = False
    return model


def __getattr__(name: str) -> Any:
    missing("horovod.tensorflow.keras", name)


__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max",
    "Min", "PartialDistributedOptimizer", "Product", "Sum", "allgather", "allgather_object",
    "allreduce", "broadcast", "broadcast_global_variables", "broadcast_object",
    "broadcast_variables", "callbacks", "elastic", "load_model", "reducescatter",
]  # fmt: skip
__all__ += basics.__all__
__all__ += process_sets.__all__
