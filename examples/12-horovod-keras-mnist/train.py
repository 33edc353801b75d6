"""Digits with Keras, as users of Elastic Horovod train them: `model.fit` and a few callbacks.

The data is made on the spot: ten blurred patterns of 14 by 14 points instead of handwriting.
Nothing in it knows Midflight.
"""

import argparse
from typing import Any

import horovod.keras as hvd
import keras
import numpy as np


def digits(count: int, seed: int) -> tuple[Any, Any]:
    """The same ten patterns in every set, with noise of its own."""
    patterns = np.random.default_rng(0).normal(size=(10, 14, 14, 1))
    labels = np.arange(count) % 10
    noise = np.random.default_rng(seed).normal(size=(count, 14, 14, 1))
    return (patterns[labels] + noise).astype(np.float32), labels


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=3200, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--batches-per-commit", type=int, default=10)
    return parser.parse_args()


def build() -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((14, 14, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


class Report(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if hvd.rank() == 0:
            loss, accuracy = logs["loss"], logs["val_accuracy"]
            shown = f"loss {loss:.4f}, accuracy {accuracy:.1%}"
            print(f"Epoch {epoch}: {shown} with {hvd.size()}", flush=True)


def main() -> None:
    options = read_options()
    hvd.init()
    images, labels = digits(options.samples, seed=hvd.rank() + 1)
    model = build()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(options.lr * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])

    @hvd.elastic.run
    def train(state: Any) -> None:
        model.fit(
            images,
            labels,
            batch_size=options.batch_size,
            initial_epoch=state.epoch,
            epochs=options.epochs,
            validation_data=digits(500, seed=0),
            verbose=0,
            callbacks=[
                hvd.callbacks.MetricAverageCallback(),
                Report(),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.CommitStateCallback(state, options.batches_per_commit),
            ],
        )

    def new_size() -> None:
        optimizer.learning_rate = options.lr * hvd.size()

    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    state.register_reset_callbacks([new_size])
    train(state)


if __name__ == "__main__":
    main()
