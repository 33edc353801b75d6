"""`kungfu.tensorflow.optimizers`: wrap an optimizer of Keras, and its steps are the cluster's.

What is exchanged is decided in `kungfu.torch.optimizers`: gradients, or models, of all workers or
in pairs. The result is an optimizer of the same class and settings. A step whose exchange was
overtaken by a loss is left out, as its result has come with the others' state. Variables and the
optimizer's state go to newcomers.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import tensorflow as tf
import torch
from torch import Tensor

from midflight.compat import tensorflow_1
from midflight.compat.aliasing import missing
from midflight.compat.horovod.tensorflow.bridge import as_written, call, same, to_numpy, to_torch
from midflight.compat.keras_versions import build, is_legacy, is_optimizer, variables_of
from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.torch.optimizers.algorithms import Exchange, in_pairs, reduced
from midflight.errors import UsageError

__all__ = [
    "PairAveragingOptimizer",
    "SynchronousAveragingOptimizer",
    "SynchronousSGDOptimizer",
]

tensorflow_1.explain(tf, tensorflow_1.KUNGFU_PAGE)


def SynchronousSGDOptimizer(optimizer: Any, name: str | None = None, **_: Any) -> Any:
    """Gradients are averaged over all workers. NCCL's options are taken and have no use."""
    return _wrapped(optimizer, reduced("mean"), models=False)


def SynchronousAveragingOptimizer(optimizer: Any, name: str | None = None, **_: Any) -> Any:
    """Models are averaged over all workers, then each applies its own gradients (SMA)."""
    return _wrapped(optimizer, reduced("mean"), models=True)


def PairAveragingOptimizer(optimizer: Any, name: str | None = None, **_: Any) -> Any:
    """Workers average their models in pairs, drawn anew for each step, then apply gradients."""
    return _wrapped(optimizer, in_pairs(seed=0), models=True)


class _Callable(list[Any]):
    """Variables, which were a method before Keras 3 and are a property now."""

    def __call__(self) -> list[Any]:
        return self


class _State:
    """The variables of an optimizer, trained and its own, as carried to newcomers."""

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = variables

    def state_dict(self) -> dict[str, Any]:
        values = (tf.convert_to_tensor(variable).numpy() for variable in self._variables)
        return {str(n): to_torch(value).clone() for n, value in enumerate(values)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for variable, value in zip(self._variables, state.values(), strict=True):
            variable.assign(to_numpy(value))


class _Shared:
    """Goes in front of the class of an optimizer of Keras 3."""

    _exchange: Exchange
    _models: bool
    _held = False

    @property
    def variables(self) -> Any:
        return _Callable(super().variables)  # type: ignore[misc] # the optimizer's

    @as_written
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        own: Any = self
        given = list(grads)
        trained = list(trainable_variables or own._trainable_variables)
        if not own.built:
            own.build(trained)
            own.built = True
        if not self._held:
            with tf.init_scope():
                _hold([*trained, *own.variables])
            self._held = True
        step = super().apply  # type: ignore[misc] # the optimizer's
        _share(self._exchange, given, trained, self._models, step)


class _LegacyShared:
    """Goes in front of the class of an optimizer of Keras 2."""

    _exchange: Exchange
    _models: bool
    _held = False

    @as_written
    def apply_gradients(self, grads_and_vars: Any, *more: Any, **named: Any) -> None:
        gradients, variables = (list(part) for part in zip(*grads_and_vars, strict=True))
        if not self._held:
            build(self, variables)
            with tf.init_scope():
                _hold([*variables, *variables_of(self)])
            self._held = True
        apply = super().apply_gradients  # type: ignore[misc] # the optimizer's

        def step(shared: list[Any], trained: list[Any]) -> None:
            apply(list(zip(shared, trained, strict=True)), *more, **named)

        _share(self._exchange, gradients, variables, self._models, step)


def _hold(variables: Sequence[Any]) -> None:
    at = peer()
    at.optimizers += 1
    at.hold(f"tensorflow-{at.optimizers}", _State(variables))


def _share(
    exchange: Exchange, gradients: list[Any], variables: list[Any], models: bool, step: Any
) -> None:
    """Exchange, then step; nothing of both if the step is to be left out."""
    there = [place for place, gradient in enumerate(gradients) if gradient is not None]
    moved = variables if models else [gradients[place] for place in there]
    values = [tf.convert_to_tensor(one) for one in moved]

    def work(tensors: list[Tensor]) -> list[Tensor]:
        copies = [tensor.clone() for tensor in tensors]
        done = exchange(peer(), copies)
        return [torch.tensor(done), *copies]

    done, *results = call(work, values, [tf.TensorSpec((), tf.bool), *map(same, values)])

    def go() -> Any:
        if models:
            for variable, value in zip(variables, results, strict=True):
                variable.assign(value)
        else:
            for place, value in zip(there, results, strict=True):
                gradients[place] = value
        step(gradients, variables)
        return tf.constant(True)

    tf.cond(done, go, lambda: tf.constant(False))


def _wrapped(optimizer: Any, exchange: Exchange, *, models: bool) -> Any:
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return _wrapped_v1(optimizer, exchange, models)
    if not is_optimizer(optimizer):
        raise UsageError(f"wanted an optimizer of Keras, got a {type(optimizer).__name__}")
    kind, front = type(optimizer), _LegacyShared if is_legacy(optimizer) else _Shared
    extra = {"_exchange": staticmethod(exchange), "_models": models, "__module__": kind.__module__}
    optimizer.__class__ = type(kind.__name__, (front, kind), extra)
    return optimizer


def _wrapped_v1(optimizer: Any, exchange: Exchange, models: bool) -> Any:
    """One of tf.compat.v1, as TensorFlow 2 still has them."""
    kind = type(optimizer)

    @as_written
    def apply_gradients(self: Any, grads_and_vars: Iterable[Any], *more: Any, **named: Any) -> None:
        pairs = [(gradient, _resource(variable)) for gradient, variable in grads_and_vars]
        gradients, variables = (list(part) for part in zip(*pairs, strict=True))
        with tf.init_scope():
            self._create_slots(variables)  # where a branch of a graph could not

        def step(shared: list[Any], trained: list[Any]) -> None:
            kind.apply_gradients(self, zip(shared, trained, strict=True), *more, **named)

        _share(exchange, gradients, variables, models, step)

    optimizer.__class__ = type(kind.__name__, (kind,), {"apply_gradients": apply_gradients})
    return optimizer


def _resource(variable: Any) -> Any:
    """The tf.Variable inside one of Keras 3, which TensorFlow's own optimizers do not know."""
    kind = getattr(sys.modules.get("keras"), "Variable", ())
    return variable.value if isinstance(variable, kind) else variable


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.tensorflow.optimizers", name)
