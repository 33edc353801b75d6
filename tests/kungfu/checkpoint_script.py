"""KungFu scripts that keep checkpoints, of the shapes of its own examples; run by two workers.

`import keras` is Keras 3, `tf.keras` is Keras 2.
"""

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from kungfu.python import current_cluster_size, current_rank
from kungfu.tensorflow.hook import ElasticHook
from kungfu.tensorflow.initializer import BroadcastGlobalVariablesCallback
from kungfu.tensorflow.ops import all_gather
from kungfu.tensorflow.optimizers import SynchronousSGDOptimizer

AGES: dict[str, Any] = {"keras": keras, "tf.keras": tf.keras}
X = np.random.default_rng(current_rank()).normal(size=(40, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def same_everywhere(model: Any) -> bool:
    sums = tf.stack([tf.reduce_sum(weight) for weight in model.get_weights()])
    return bool(tf.reduce_all(tf.abs(all_gather(sums) - sums) < 1e-5))


def make_model(of: Any) -> Any:
    return of.Sequential([of.layers.Dense(3), of.layers.Dense(1)])


def fit_with_checkpoints(name: str, path: str, **options: Any) -> None:
    """Only the first worker writes."""
    of, model = AGES[name], make_model(AGES[name])
    plain = of.optimizers.Adadelta(0.01 * current_cluster_size())
    model.compile(optimizer=SynchronousSGDOptimizer(plain, with_keras=True), loss="mse")
    callbacks = [BroadcastGlobalVariablesCallback(with_keras=True)]
    if current_rank() == 0:
        callbacks.append(of.callbacks.ModelCheckpoint(path, **options))
    model.fit(X, Y, batch_size=10, epochs=3, verbose=0, callbacks=callbacks)
    wrote = current_rank() != 0 or os.path.exists(path.format(epoch=3))
    print(f"checkpoints of {name}: same {same_everywhere(model)} wrote {wrote}", flush=True)


def save_and_load(name: str, file: str) -> None:
    """A compiled model with its wrapped optimizer comes back with a plain one of its class."""
    of, model = AGES[name], make_model(AGES[name])
    plain = of.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer=SynchronousSGDOptimizer(plain), loss="mse")
    model.fit(X, Y, batch_size=10, epochs=2, verbose=0)
    own = f"{current_rank()}-{file}"
    model.save(own)
    loaded = of.models.load_model(own, custom_objects={"mse": of.losses.MeanSquaredError()})
    kept = all(map(np.array_equal, loaded.get_weights(), model.get_weights()))
    alike = type(loaded.optimizer) is of.optimizers.SGD
    counted = int(loaded.optimizer.iterations)
    print(f"{file}: kept {kept}, a plain optimizer {alike}, counted {counted}", flush=True)


def average_models(name: str) -> None:
    of, model = AGES[name], make_model(AGES[name])
    model.compile(optimizer=of.optimizers.SGD(0.01), loss="mse")
    hook = ElasticHook(10, epochs=1, epoch_size=80)
    model.fit(X, Y, batch_size=10, epochs=1, verbose=0, callbacks=[hook])
    print(f"hook of {name}: same {same_everywhere(model)}", flush=True)


if __name__ == "__main__":
    fit_with_checkpoints("keras", "three-{epoch}.h5")
    fit_with_checkpoints("tf.keras", "two-{epoch}.hdf5", save_weights_only=True, period=1)
    save_and_load("keras", "three.keras")
    save_and_load("keras", "three.h5")
    save_and_load("tf.keras", "two.h5")
    average_models("keras")
    average_models("tf.keras")
