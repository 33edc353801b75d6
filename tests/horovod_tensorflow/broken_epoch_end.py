"""A `fit` that is broken off once, after the last batch of an epoch and before the epoch's end."""

from typing import Any

import horovod.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

EPOCHS, STEPS = 4, 5

keras: Any = tf.keras  # 3 or 2
hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")


class Break(keras.callbacks.Callback):
    """As the averaging of metrics does, when somebody is lost just then."""

    broken = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1 and not Break.broken:
            Break.broken = True
            raise HorovodInternalError("a rank was lost")


@hvd.elastic.run
def train(state: Any) -> None:
    print(f"begins epoch={state.epoch} batch={state.batch}", flush=True)
    inputs = np.ones((8 * STEPS, 4), np.float32)
    model.fit(
        inputs,
        inputs.sum(1, keepdims=True),
        batch_size=8,
        initial_epoch=state.epoch,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            Break(),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=100),
        ],
    )


state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)
print(f"done: {state.epoch} epochs of {int(model.optimizer.iterations)} batches", flush=True)
