"""`kungfu.tensorflow.initializer`: all workers begin with the variables of rank 0."""

from typing import Any, NoReturn

from midflight.compat.aliasing import missing
from midflight.compat.keras_versions import callback, variables_of
from midflight.compat.kungfu.tensorflow.collectives import broadcast_variables

__all__ = ["BroadcastGlobalVariablesCallback", "broadcast_variables"]


class BroadcastGlobalVariablesCallback(callback()):  # type: ignore[misc]
    """After the first batch, when there are variables: those of the model and the optimizer."""

    def __init__(self, with_keras: bool = False) -> None:
        """`with_keras` is taken and has no use: there is one Keras."""
        super().__init__()
        self._done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._done:
            broadcast_variables([*self.model.variables, *variables_of(self.model.optimizer)])
            self._done = True


def __getattr__(name: str) -> NoReturn:
    if name in ("BroadcastGlobalVariablesOp", "BroadcastGlobalVariablesHook"):
        raise AttributeError(
            f"{name} is for sessions of TensorFlow 1; with TensorFlow 2 call "
            "broadcast_variables(variables); see docs/coming-from-kungfu.md of Midflight"
        )
    missing("kungfu.tensorflow.initializer", name)
