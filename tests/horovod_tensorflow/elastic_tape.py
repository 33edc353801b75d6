"""An elastic program of the shape of Horovod's own example: each step says how far everything is.

A model that its first batch builds, a first step that reduces nothing, and a rate for each size.
"""

import time
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

keras: Any = tf.keras  # 3 or 2
hvd.init()
keras.utils.set_random_seed(hvd.rank())
MODEL = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
OPTIMIZER = tf.optimizers.Adam(0.01 * hvd.size())


@tf.function
def train_one_batch(inputs: Any, labels: Any, allreduce: bool = True) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((MODEL(inputs, training=True) - labels) ** 2)
    if allreduce:
        tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, MODEL.trainable_variables)
    OPTIMIZER.apply_gradients(zip(gradients, MODEL.trainable_variables, strict=True))
    return loss


@hvd.elastic.run
def train(state: Any) -> None:
    while True:
        inputs = tf.random.normal((8, 4))
        train_one_batch(inputs, tf.reduce_sum(inputs, axis=1, keepdims=True))
        state.batch += 1
        total = sum(float(tf.reduce_sum(weight)) for weight in MODEL.weights)
        taken = int(OPTIMIZER.iterations) - 1  # the first one was for the model only
        print(f"step={state.batch} taken={taken} total={total:.5f} size={hvd.size()}", flush=True)
        time.sleep(0.05)  # so that there is not too much of it
        if state.batch % 5 == 0:
            state.commit()


def reset() -> None:
    rate = OPTIMIZER.lr if hasattr(OPTIMIZER, "lr") else OPTIMIZER.learning_rate
    rate.assign(0.01 * hvd.size())
    print(f"now {hvd.size()}", flush=True)


train_one_batch(tf.zeros((8, 4)), tf.zeros((8, 1)), allreduce=False)
STATE = hvd.elastic.TensorFlowKerasState(MODEL, OPTIMIZER, batch=0)
STATE.register_reset_callbacks([reset])
train(STATE)
