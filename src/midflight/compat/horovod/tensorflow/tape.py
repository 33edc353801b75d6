"""DistributedGradientTape: a tape whose gradients are those of all ranks."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.tensorflow.bridge import as_written
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.tensorflow.gradients import (
    Reduction,
    chosen_groups,
    reduce_gradients,
)
from midflight.compat.horovod.torch.mpi_ops import Average
from midflight.compat.keras_versions import keras


class _Distributed:
    """Goes in front of a tape's own class."""

    _reduction: Reduction
    _local: set[int]

    def register_local_source(self, source: Any) -> None:
        """Each rank trains this variable for itself."""
        self._local.add(id(source))

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        found = super().gradient(  # type: ignore[misc] # the tape's
            target, sources, output_gradients, unconnected_gradients
        )
        flat = tf.nest.flatten(found)
        reduced = reduce_gradients(flat, tf.nest.flatten(sources), self._local, self._reduction)
        return tf.nest.pack_sequence_as(found, reduced)


@as_written
def DistributedGradientTape(  # noqa: PLR0913
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The same tape, whether it has recorded already or not, with gradients over all ranks."""
    reduction = Reduction(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        chosen_groups(num_groups, groups),
        process_set,
        scale_local_gradients,
    )
    kind = type(gradtape)
    extra = {"_reduction": reduction, "_local": set(), "__module__": kind.__module__}
    tape: Any = object.__new__(type(kind.__name__, (_Distributed, kind), extra))
    tape.__dict__ = gradtape.__dict__
    return tape


def with_local_layers(whole: Callable[..., Any], name: str, register: str) -> Callable[..., Any]:
    """`whole` with a parameter more: `local_layers`, which each rank trains for itself."""

    @functools.wraps(whole)
    def partly(given: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
        made = whole(given, *args, **kwargs)
        for variable in local_variables(local_layers):
            getattr(made, register)(variable)
        return made

    layers = inspect.Parameter("local_layers", inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = inspect.signature(whole)
    parameters = [*signature.parameters.values(), layers]
    partly.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    partly.__name__ = partly.__qualname__ = name
    partly.__doc__ = f"Like {whole.__name__}, but each rank trains `local_layers` for itself."
    return partly


def local_variables(layers: Any) -> Sequence[Any]:
    given = [layers] if isinstance(layers, keras.layers.Layer) else list(layers or ())
    if not all(isinstance(layer, keras.layers.Layer) for layer in given):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [variable for layer in given for variable in layer.trainable_weights]


PartialDistributedGradientTape = with_local_layers(
    DistributedGradientTape, "PartialDistributedGradientTape", "register_local_source"
)

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]
