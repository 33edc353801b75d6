"""Digits with TensorFlow, as users of Elastic Horovod train them: a tape in a loop of its own.

The data is made on the spot: ten blurred patterns of 14 by 14 points instead of handwriting.
Nothing in it knows Midflight.
"""

import argparse
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf


def digits(count: int, seed: int) -> tf.data.Dataset:
    """The same ten patterns in every set, with noise of its own."""
    patterns = np.random.default_rng(0).normal(size=(10, 14, 14, 1))
    labels = np.arange(count) % 10
    noise = np.random.default_rng(seed).normal(size=(count, 14, 14, 1))
    images = (patterns[labels] + noise).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((images, labels.astype(np.int64)))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1000, help="in all, by one worker's count")
    parser.add_argument("--samples", type=int, default=3200)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--batches-per-commit", type=int, default=10)
    return parser.parse_args()


def build() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((14, 14, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    options = read_options()
    hvd.init()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    dataset = digits(options.samples, seed=hvd.rank() + 1)
    dataset = dataset.repeat().shuffle(1000).batch(options.batch_size)
    model = build()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(options.lr * hvd.size())

    @tf.function
    def train_one_batch(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    @hvd.elastic.run
    def train(state: Any) -> None:
        for images, labels in dataset:
            if state.batch >= options.steps // hvd.size():
                break
            value = train_one_batch(images, labels)
            state.batch += 1
            if state.batch % 10 == 0:
                print(f"Step #{state.batch}\tLoss: {float(value):.6f}", flush=True)
            if state.batch % options.batches_per_commit == 0:
                state.commit()

    def new_size() -> None:
        optimizer.learning_rate.assign(options.lr * hvd.size())

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)
    state.register_reset_callbacks([new_size])
    train(state)
    if hvd.rank() == 0:
        images, labels = next(iter(digits(500, seed=0).batch(500)))
        right = tf.reduce_mean(tf.cast(tf.argmax(model(images), 1) == labels, tf.float32))
        print(f"accuracy {float(right):.1%}", flush=True)


if __name__ == "__main__":
    main()
