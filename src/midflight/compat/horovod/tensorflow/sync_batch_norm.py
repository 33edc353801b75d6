"""Batch normalization with the mean and the variance of all ranks' batches."""

from typing import Any

import tensorflow as tf

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.tensorflow.bridge import as_written
from midflight.compat.horovod.tensorflow.mpi_ops import allreduce
from midflight.compat.horovod.torch.mpi_ops import Average
from midflight.compat.keras_versions import LEGACY, keras


@keras.saving.register_keras_serializable(package="horovod")
class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Ranks count equally; their batches should be of one size."""

    def __init__(self, process_set: ProcessSet = global_process_set, **kwargs: Any) -> None:
        if kwargs.pop("fused", False):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        super().__init__(**kwargs, **({"fused": False} if LEGACY else {}))
        self.process_set = process_set

    @as_written
    def _moments(self, *args: Any, **kwargs: Any) -> Any:
        """Of this rank's batch, and so of all; each Keras has parameters of its own."""
        mean, variance = super()._moments(*args, **kwargs)
        both = tf.stack([mean, variance + mean**2])
        mean, squares = tf.unstack(allreduce(both, op=Average, process_set=self.process_set))
        return mean, squares - mean**2


__all__ = ["SyncBatchNormalization"]
