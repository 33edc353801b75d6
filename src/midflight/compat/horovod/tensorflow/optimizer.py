"""DistributedOptimizer: a Keras optimizer that steps with the gradients of all ranks.

The result has a class of its own with the name of the given optimizer's, and is one: isinstance
holds, and a saved model does not know the difference. A step changes nothing, not even the count
of steps, before its gradients are there: a step that a lost rank has broken has not happened.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import as_written, keras
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.tensorflow.gradients import (
    Reduction,
    chosen_groups,
    reduce_gradients,
)
from midflight.compat.horovod.tensorflow.mpi_ops import allreduce
from midflight.compat.horovod.tensorflow.tape import with_local_layers
from midflight.compat.horovod.torch.mpi_ops import Average, Min, Sum

_UNKNOWN = "Provided optimizer doesn't inherit from either legacy TensorFlow or Keras optimizer: %s"


class _Careful:
    """Goes in front of an optimizer's class: nothing happens before all gradients are there.

    TensorFlow does not wait for a gradient before it counts the step.
    """

    @as_written
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        given = list(grads)
        with tf.control_dependencies(_tensors(given)):
            super().apply(given, trainable_variables)  # type: ignore[misc] # the optimizer's


class _Distributed:
    """Goes in front of an optimizer's class."""

    _reduction: Reduction
    _local: set[int]
    _passes: int
    _mean_of_passes: bool
    _sums: dict[int, Any]  # by id of the variable; this rank's own, so not among its variables

    def register_local_var(self, variable: Any) -> None:
        """Each rank trains this variable for itself."""
        self._local.add(id(variable))

    def build(self, variables: Any) -> None:
        super().build(variables)  # type: ignore[misc] # the optimizer's
        if self._passes > 1:
            with tf.init_scope():
                for variable in variables:
                    zeros = tf.zeros(variable.shape, variable.dtype)
                    self._sums[id(variable)] = tf.Variable(zeros, trainable=False)

    @as_written
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        given = list(grads)
        if trainable_variables is None:
            variables = list(self._trainable_variables)  # type: ignore[attr-defined]
        else:
            variables = list(trainable_variables)
        if not self.built:  # type: ignore[has-type]
            self.build(variables)
            self.built = True
        if self._passes == 1:
            self._step(given, variables)
        else:
            self._gather_passes(given, variables)

    def _step(self, gradients: list[Any], variables: list[Any]) -> None:
        reduced = reduce_gradients(gradients, variables, self._local, self._reduction)
        with tf.control_dependencies(_tensors(reduced)):
            super().apply(reduced, variables)  # type: ignore[misc] # the optimizer's
            for variable in variables:
                total = self._sums.get(id(variable))
                if total is not None:
                    total.assign(tf.zeros_like(total))

    def _gather_passes(self, gradients: list[Any], variables: list[Any]) -> None:
        """Add up, and step with the sum every so many passes. A step that fails adds nothing."""
        totals = [
            None if gradient is None else tf.convert_to_tensor(gradient) + self._sums[id(variable)]
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        count = tf.convert_to_tensor(self._iterations)  # type: ignore[attr-defined]

        def step() -> Any:
            share = 1.0 / self._passes if self._mean_of_passes else 1.0
            scaled = [None if t is None else t * tf.cast(share, t.dtype) for t in totals]
            self._step(scaled, variables)
            return tf.constant(True)

        def keep() -> Any:
            for total, variable in zip(totals, variables, strict=True):
                if total is not None:
                    self._sums[id(variable)].assign(total)
            self._iterations.assign_add(1)  # type: ignore[attr-defined]
            return tf.constant(False)

        tf.cond(tf.equal((count + 1) % self._passes, 0), step, keep)


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
    if isinstance(optimizer, keras.optimizers.Optimizer) and not issubclass(
        kind, (_Careful, _Distributed)
    ):
        optimizer.__class__ = type(kind.__name__, (_Careful, kind), {"__module__": kind.__module__})


def distributed(
    optimizer: Any, reduction: Reduction, passes: int, mean_of_passes: bool, name: str | None
) -> Any:
    """Another optimizer with the same settings, and the same state if it has one."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(_UNKNOWN % optimizer)
    backend = keras.backend.backend()
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
    config = optimizer.get_config() | ({"name": name} if name is not None else {})
    wrapped: Any = type(kind.__name__, (_Distributed, kind), extra)
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
