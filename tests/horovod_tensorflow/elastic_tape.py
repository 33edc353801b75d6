"""An elastic program with a loop of its own: each step says how far everything is."""

import time
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

hvd.init()
keras.utils.set_random_seed(hvd.rank())
MODEL = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
)
OPTIMIZER = keras.optimizers.Adam(0.01)


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
        taken = int(OPTIMIZER.iterations)
        print(f"step={state.batch} taken={taken} total={total:.5f} size={hvd.size()}", flush=True)
        time.sleep(0.05)  # so that there is not too much of it
        if state.batch % 5 == 0:
            state.commit()


STATE = hvd.elastic.TensorFlowKerasState(MODEL, OPTIMIZER, batch=0)
STATE.register_reset_callbacks([lambda: print(f"now {hvd.size()}", flush=True)])
train(STATE)
