"""A fake Keras: a callback class, and a model whose `fit` adds its rank's number to its weights."""

from types import SimpleNamespace
from typing import Any

import numpy as np


class Callback:
    model: Any


callbacks = SimpleNamespace(Callback=Callback)


class Variable:
    def __init__(self, value: float) -> None:
        self._value = np.full(2, value, np.float32)

    def numpy(self) -> Any:
        return self._value

    def assign(self, value: Any) -> None:
        self._value = np.array(value)


class Model:
    """One weight, an optimizer that counts, and a training that is no training."""

    def __init__(self) -> None:
        self.weights = [Variable(0.0)]
        self.trainable_variables = self.weights
        self.optimizer = SimpleNamespace(built=True, variables=[Variable(0.0)])
        self.stop_training = False

    def get_weights(self) -> list[Any]:
        return [weight.numpy() for weight in self.weights]

    def set_weights(self, values: list[Any]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.assign(value)

    def fit(self, hook: Any, gain: Any, batches: int) -> None:
        hook.model = self
        hook.on_train_begin()
        for batch in range(batches):
            hook.on_train_batch_begin(batch)
            self.weights[0].assign(self.weights[0].numpy() + gain())
            self.optimizer.variables[0].assign(self.optimizer.variables[0].numpy() + 1)
            hook.on_train_batch_end(batch)
            if self.stop_training:
                break
