"""`kungfu.tensorflow.v1`: the helpers that scripts for TensorFlow 2 import as well.

Estimators and sessions are TensorFlow 1's. A script that uses them is told so, when it does.
"""

import importlib
from typing import Any, NoReturn

PAGE = "docs/coming-from-kungfu.md#tensorflow-1"


class _Gone:
    """Stands where TensorFlow 2 has nothing any more."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self._name}.{name} needs TensorFlow 1, which Midflight does not run; {PAGE} shows "
            "how a script with an estimator becomes one with Keras"
        )


def _mark_what_is_gone() -> None:
    try:
        tensorflow: Any = importlib.import_module("tensorflow")
    except ModuleNotFoundError:
        return
    for name in ("estimator", "layers", "train"):
        if not hasattr(tensorflow, name):
            setattr(tensorflow, name, _Gone(f"tf.{name}"))


_mark_what_is_gone()
