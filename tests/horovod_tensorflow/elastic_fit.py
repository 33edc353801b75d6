"""An elastic program with `model.fit`: each batch says how far everything is."""

import os
import time
from typing import Any

import horovod.keras as hvd
import numpy as np
import tensorflow as tf

STEPS = 10

keras: Any = tf.keras  # 3 or 2
hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")


class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        total = sum(float(np.sum(weight)) for weight in model.get_weights())
        place = f"epoch={state.epoch} batch={state.batch}"
        taken = int(model.optimizer.iterations)
        print(f"{place} taken={taken} total={total:.5f} size={hvd.size()}", flush=True)
        time.sleep(0.05)  # so that there is not too much of it

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """All ranks stop when one of them sees the file."""
        if hvd.allreduce(float(os.path.exists("enough")), name="enough"):
            model.stop_training = True


@hvd.elastic.run
def train(state: Any) -> None:
    inputs = np.random.normal(size=(8 * STEPS, 4)).astype(np.float32)
    model.fit(
        inputs,
        inputs.sum(1, keepdims=True),
        batch_size=8,
        initial_epoch=state.epoch,
        epochs=10000,
        verbose=0,
        callbacks=[
            hvd.callbacks.MetricAverageCallback(),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            Tell(),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=3),
        ],
    )
    print(f"done: {state.epoch} epochs", flush=True)


state = hvd.elastic.KerasState(model, epoch=0, batch=0)
train(state)
