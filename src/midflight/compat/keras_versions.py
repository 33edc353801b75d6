"""Keras 3, and Keras 2 as the package tf-keras: which of them a script uses.

`tf.keras` is Keras 2 where TF_USE_LEGACY_KERAS says so, and so is `keras` here. A script may import
Keras 3 as `keras` all the same, so what is done to an optimizer depends on where it comes from.
What scripts for Keras 2 use and Keras 3 took away raises an error that says how to get Keras 2.
"""

import functools
import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")  # as TensorFlow reads it

_REMOVED = (
    "Keras 3 has no {name}; use {instead}, or run the script with Keras 2: "
    "pip install tf-keras, and set TF_USE_LEGACY_KERAS=1"
)


def is_optimizer(given: object) -> bool:
    """Of Keras 3 or 2, whichever the script has loaded."""
    loaded = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    kinds: list[Any] = [module.optimizers.Optimizer for module in loaded]
    kinds += [m.optimizers.legacy.Optimizer for m in loaded if m.__name__ == "tf_keras"]
    return isinstance(given, tuple(kinds))


def is_legacy(optimizer: object) -> bool:
    """Of Keras 2, where `apply_gradients` does the step; in Keras 3 `apply` does."""
    return any(kind.__module__.startswith("tf_keras.") for kind in type(optimizer).__mro__)


def variables_of(optimizer: Any) -> list[Any]:
    """A method of the oldest optimizers, a property of the others."""
    found = optimizer.variables
    return list(found() if callable(found) and is_legacy(optimizer) else found)


def build(optimizer: Any, variables: Iterable[Any]) -> None:
    """Make the optimizer's own variables, if they are not there yet."""
    if not is_legacy(optimizer):
        if not getattr(optimizer, "built", True):
            optimizer.build(variables)
        return
    import tensorflow as tf

    make = getattr(optimizer, "build", None) or optimizer._create_all_weights
    with tf.init_scope():
        make(list(variables))


class _Variables(list[Any]):
    def __call__(self) -> None:
        raise TypeError(_REMOVED.format(name="Optimizer.variables()", instead="variables"))


def _explain_removed_names(module: Any) -> None:
    """`module`: Keras 3, whose classes are to say what has become of a name."""
    kind = module.optimizers.Optimizer
    # Where it is defined: Keras asks whether a model's class has overridden it.
    model = next(each for each in module.Model.__mro__ if "compile" in vars(each))
    variables, compile_model = kind.variables, model.compile

    def no_rate(*_: Any) -> None:
        raise AttributeError(_REMOVED.format(name="Optimizer.lr", instead="learning_rate"))

    @functools.wraps(compile_model)
    def compile_with(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "experimental_run_tf_function" in kwargs:
            name = "compile(experimental_run_tf_function=...)"
            raise TypeError(_REMOVED.format(name=name, instead="compile without it"))
        return compile_model(self, *args, **kwargs)

    kind.lr = property(no_rate, no_rate)
    kind.variables = property(lambda self: _Variables(variables.fget(self)))
    model.compile = compile_with


def _keras() -> Any:
    return importlib.import_module("tf_keras") if LEGACY else _keras_3()


@functools.cache
def _keras_3() -> Any:
    module = importlib.import_module("keras")
    _explain_removed_names(module)
    return module


def callback() -> Any:
    """The base of a callback for any Keras the script has loaded: 3 takes those of 2, not so 2."""
    if "tf_keras" in sys.modules:
        return sys.modules["tf_keras"].callbacks.Callback
    return (_keras_3() if "keras" in sys.modules else _keras()).callbacks.Callback


def __getattr__(name: str) -> Any:
    """`keras`, loaded when somebody wants it."""
    if name == "keras":
        return _keras()
    raise AttributeError(name)
