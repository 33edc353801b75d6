"""A KungFu script for TensorFlow 2: `fit`, tapes in a tf.function, and a resize from 1 to 2."""

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import tensorflow as tf
from kungfu.cmd import monitor_batch_begin, monitor_batch_end
from kungfu.python import current_cluster_size, current_rank, detached
from kungfu.tensorflow.initializer import BroadcastGlobalVariablesCallback, broadcast_variables
from kungfu.tensorflow.ops import all_gather, all_reduce, broadcast, resize
from kungfu.tensorflow.optimizers import (
    PairAveragingOptimizer,
    SynchronousAveragingOptimizer,
    SynchronousSGDOptimizer,
)
from kungfu.tensorflow.v1.helpers.mnist import load_datasets

STEPS = 12


def make_model() -> tf.keras.Model:
    return tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)])


def data(seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    x = tf.random.stateless_normal((40, 4), (seed, 1))
    return x, tf.reduce_sum(x, axis=1, keepdims=True)


def same_everywhere(model: tf.keras.Model) -> bool:
    sums = tf.stack([tf.reduce_sum(weight) for weight in model.weights])
    return bool(tf.reduce_all(tf.abs(all_gather(sums) - sums) < 1e-5))


def fit(wrap: Any) -> None:
    model = make_model()
    model.compile(optimizer=wrap(tf.keras.optimizers.SGD(0.01, momentum=0.9)), loss="mse")
    x, y = data(current_rank())
    callbacks = [BroadcastGlobalVariablesCallback()]
    model.fit(x, y, batch_size=10, epochs=5, verbose=0, callbacks=callbacks)
    learns = float(model.evaluate(x, y, verbose=0)) < 4
    print(f"fit with {wrap.__name__}: same {same_everywhere(model)} learns {learns}", flush=True)


def tape() -> None:
    model, x, y = make_model(), *data(7)
    optimizer = SynchronousSGDOptimizer(tf.compat.v1.train.AdamOptimizer(0.01))

    @tf.function  # type: ignore[untyped-decorator]
    def step(first: bool) -> tf.Tensor:
        with tf.GradientTape() as recorder:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = recorder.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first:
            broadcast_variables(model.variables)
            broadcast_variables(optimizer.variables())
        return loss

    for number in range(5):
        step(number == 0)
    print(f"tape: same {same_everywhere(model)}", flush=True)


def mean() -> None:
    """As in KungFu, whose TensorFlow optimizer divides by the number of workers."""
    weight = tf.Variable(0.0)
    optimizer = SynchronousSGDOptimizer(tf.keras.optimizers.SGD(1.0))
    optimizer.apply_gradients([(tf.constant(-1.0 - current_rank()), weight)])
    print(f"moved by the mean of gradients 1 and 2: {float(weight)}", flush=True)


def elastic() -> None:
    model, (x, y) = make_model(), data(current_rank())
    optimizer = SynchronousSGDOptimizer(tf.keras.optimizers.SGD(0.01, momentum=0.9))
    done, need_sync = tf.Variable(0), True

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> None:
        with tf.GradientTape() as recorder:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        gradients = recorder.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function  # type: ignore[untyped-decorator]
    def resize_cluster(size: int) -> tf.Tensor:
        return resize(size)

    while int(done) < STEPS:
        monitor_batch_begin()
        done.assign_add(1)
        step()
        if need_sync:
            broadcast_variables([done])
            broadcast_variables(optimizer.variables())
            need_sync = False
        monitor_batch_end()
        need_sync = bool(resize_cluster(2)) if int(done) == 4 else bool(resize())
        if detached():
            return
    counted = int(optimizer.iterations)
    print(
        f"elastic: {int(done)} np={current_cluster_size()} counted {counted} "
        f"same {same_everywhere(model)}",
        flush=True,
    )


if __name__ == "__main__":
    elastic()
    for wrap in (SynchronousSGDOptimizer, SynchronousAveragingOptimizer, PairAveragingOptimizer):
        fit(wrap)
    tape()
    mean()
    total = int(all_reduce(tf.constant(current_rank() + 1)))
    print(f"sum {total} of rank 0: {int(broadcast(tf.constant(5 + current_rank())))}", flush=True)
    for module, gone in ((tf, "estimator"), (tf, "Session"), (tf.train, "AdamOptimizer")):
        try:
            getattr(module, gone)
        except AttributeError as error:
            print(error, flush=True)
    assert callable(load_datasets)
