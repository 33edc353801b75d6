"""DistributedOptimizer: a Keras optimizer that steps with the gradients of all ranks.

The result has a class of its own with the name of the given optimizer's, and is one: isinstance
holds, and a saved model does not know the difference. A step changes nothing, not even the count
of steps, before its gradients are there: a step that a lost rank has broken has not happened.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import as_written
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.tensorflow.gradients import (
    Reduction,
    chosen_groups,
    reduce_gradients,
)
from midflight.compat.horovod.tensorflow.mpi_ops import allreduce
from midflight.compat.horovod.tensorflow.tape import with_local_layers
from midflight.compat.horovod.torch.mpi_ops import Average, Min, Sum
from midflight.compat.keras_versions import is_legacy, is_optimizer

_UNKNOWN = "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: %s"


_Update = Callable[[list[Any], list[Any]], Any]


class _Careful:
    """Goes in front of an optimizer's class: nothing happens before all gradients are there.

    TensorFlow does not wait for a gradient before it counts the step. The step is `apply` in
    Keras 3, and `apply_gradients`, which calls `apply` there, in Keras 2.
    """

    @as_written
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        given = list(grads)
        with tf.control_dependencies(_tensors(given)):
            super().apply(given, trainable_variables)  # type: ignore[misc] # the optimizer's


class _LegacyCareful:
    @as_written
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        with tf.control_dependencies(_tensors([gradient for gradient, _ in pairs])):
            return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]


class _Distributed:
    """What both kinds of optimizers have in common."""

    _reduction: Reduction
    _local: set[int]
    _passes: int
    _mean_of_passes: bool
    _sums: dict[int, Any]  # by id of the variable; this rank's own, so not among its variables

    def register_local_var(self, variable: Any) -> None:
        """Each rank trains this variable for itself."""
        self._local.add(id(variable))

    def _advance(self, gradients: list[Any], variables: list[Any], update: _Update) -> None:
        """Reduce, and have the optimizer do its `update`; or add up, where several passes count."""
        if self._passes == 1:
            self._step(gradients, variables, update)
            return
        with tf.init_scope():
            for variable in variables:
                if id(variable) not in self._sums:
                    zeros = tf.zeros(variable.shape, variable.dtype)
                    self._sums[id(variable)] = tf.Variable(zeros, trainable=False)
        self._gather_passes(gradients, variables, update)

    def _step(self, gradients: list[Any], variables: list[Any], update: _Update) -> None:
        reduced = reduce_gradients(gradients, variables, self._local, self._reduction)
        with tf.control_dependencies(_tensors(reduced)):
            update(reduced, variables)
            for variable in variables:
                total = self._sums.get(id(variable))
                if total is not None:
                    total.assign(tf.zeros_like(total))

    def _gather_passes(self, gradients: list[Any], variables: list[Any], update: _Update) -> None:
        """Add up, and step with the sum every so many passes. A step that fails adds nothing."""
        totals = [
            None if gradient is None else tf.convert_to_tensor(gradient) + self._sums[id(variable)]
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        own: Any = self
        steps = own.iterations if own._iterations is None else own._iterations
        count = tf.convert_to_tensor(steps)

        def step() -> Any:
            share = 1.0 / self._passes if self._mean_of_passes else 1.0
            scaled = [None if t is None else t * tf.cast(share, t.dtype) for t in totals]
            self._step(scaled, variables, update)
            return tf.constant(True)

        def keep() -> Any:
            for total, variable in zip(totals, variables, strict=True):
                if total is not None:
                    self._sums[id(variable)].assign(total)
            steps.assign_add(1)
            return tf.constant(False)

        tf.cond(tf.equal((count + 1) % self._passes, 0), step, keep)


class _DistributedNow(_Distributed):
    """Goes in front of the class of an optimizer of Keras 3."""

    @as_written
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        own: Any = self
        given = own._trainable_variables if trainable_variables is None else trainable_variables
        variables = list(given)
        if not own.built:
            own.build(variables)
            own.built = True
        self._advance(list(grads), variables, super().apply)  # type: ignore[misc]


class _DistributedLegacy(_Distributed):
    """Goes in front of the class of an optimizer of Keras 2."""

    @as_written
    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> None:
        pairs = list(grads_and_vars)
        gradients, variables = [one for one, _ in pairs], [one for _, one in pairs]
        apply = super().apply_gradients  # type: ignore[misc] # the optimizer's

        def update(reduced: list[Any], variables: list[Any]) -> None:
            apply(list(zip(reduced, variables, strict=True)), *args, **kwargs)

        self._advance(gradients, variables, update)


def _tensors(gradients: Sequence[Any]) -> list[Any]:
    found = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            found += [gradient.values, gradient.indices]
        elif gradient is not None:
            found.append(gradient)
    return found


def careful(optimizer: Any) -> None:
    """See to it that this optimizer counts no step whose gradients did not come."""
    kind = type(optimizer)
    if is_optimizer(optimizer) and not issubclass(kind, (_Careful, _LegacyCareful, _Distributed)):
        front = _LegacyCareful if is_legacy(optimizer) else _Careful
        optimizer.__class__ = type(kind.__name__, (front, kind), {"__module__": kind.__module__})


def distributed(
    optimizer: Any, reduction: Reduction, passes: int, mean_of_passes: bool, name: str | None
) -> Any:
    """An optimizer with the same settings, and the same state if it has one."""
    if not is_optimizer(optimizer):
        raise ValueError(_UNKNOWN % optimizer)
    legacy = is_legacy(optimizer)
    backend = "tensorflow" if legacy else sys.modules["keras"].backend.backend()
    if backend != "tensorflow":
        raise ValueError(f"wanted Keras on TensorFlow, got it on {backend}; set KERAS_BACKEND")
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if passes > 1 and hasattr(optimizer, "inner_optimizer"):
        raise ValueError(
            f"backward_passes_per_step > 1 wants the optimizer inside, got a "
            f"{type(optimizer).__name__}; put that around the DistributedOptimizer"
        )
    kind = type(optimizer)
    if issubclass(kind, _Distributed):
        raise ValueError("the optimizer is distributed already")
    extra = {
        "_reduction": reduction,
        "_local": set(),
        "_passes": passes,
        "_mean_of_passes": mean_of_passes,
        "_sums": {},
        "__module__": kind.__module__,
    }
    front = _DistributedLegacy if legacy else _DistributedNow
    wrapped: Any = type(kind.__name__, (front, kind), extra)
    if legacy:  # it cannot say which variables it has state for
        optimizer.__class__ = wrapped
        if name is not None:
            setattr(optimizer, "_name" if hasattr(optimizer, "_name") else "name", name)
        return optimizer
    config = optimizer.get_config() | ({"name": name} if name is not None else {})
    made = wrapped.from_config(config)
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        for own, other in zip(made.variables, optimizer.variables, strict=True):
            own.assign(other)
    _tell_keras()
    return made


def innermost(optimizer: Any) -> Any:
    """Without what Keras puts around an optimizer when it trains in half precision."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


@functools.cache
def _tell_keras() -> None:
    """Two things that Keras decides around an optimizer, it has to decide otherwise around ours.

    On GPUs it has XLA compile training steps unless told not to; ours call Python. In half
    precision each rank would leave out a step whose own gradients are not finite, while the others
    wait for it; all ranks have to leave it out.
    """
    keras: Any = sys.modules["keras"]
    resolve = keras.Model._resolve_auto_jit_compile
    scaling = keras.optimizers.LossScaleOptimizer
    check = scaling.check_finite

    def resolve_for_ours(model: Any) -> bool:
        ours = (model.optimizer, innermost(model.optimizer))
        return not any(isinstance(one, _Distributed) for one in ours) and bool(resolve(model))

    @as_written
    def check_everywhere(optimizer: Any, grads: Any) -> Any:
        finite = check(optimizer, grads)
        inner = innermost(optimizer)
        if not isinstance(inner, _Distributed) or PROCESS.standing.env is None:
            return finite
        ranks = inner._reduction.process_set
        return allreduce(tf.cast(finite, tf.int32), op=Min, process_set=ranks) > 0

    keras.Model._resolve_auto_jit_compile = resolve_for_ours
    scaling.check_finite = check_everywhere


def DistributedOptimizer(  # noqa: PLR0913
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    reduction = Reduction(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        chosen_groups(num_groups, groups),
        process_set,
        scale_local_gradients,
    )
    return distributed(
        optimizer, reduction, backward_passes_per_step, average_aggregated_gradients, name
    )


PartialDistributedOptimizer = with_local_layers(
    DistributedOptimizer, "PartialDistributedOptimizer", "register_local_var"
)

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer"]
