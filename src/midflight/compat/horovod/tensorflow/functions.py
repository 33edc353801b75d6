"""Variables and plain values from one rank to the others.

Variables of one type travel as one buffer. Plain values are packed as states for newcomers are:
nothing that another rank sends is run as code.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common import basics
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import as_written, call, named, same
from midflight.compat.horovod.torch import functions
from midflight.compat.horovod.torch import mpi_ops as ops


@as_written
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Every variable everywhere as on the root. In a graph of the old kind: the op that does it."""
    kept = list(variables)
    values = [tf.convert_to_tensor(variable) for variable in kept]
    label = named("broadcast_variables")

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        name = PROCESS.name("variables", label, process_set.process_set_id)
        return broadcast_flat(given, root_rank, name, process_set)

    results = call(work, values, [same(value) for value in values]) if kept else []
    done = [variable.assign(value) for variable, value in zip(kept, results, strict=True)]
    if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function:
        return None
    return tf.group(*done)


def broadcast_flat(
    tensors: Sequence[torch.Tensor],
    root: int,
    name: str,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """The root's tensors; one transfer for each type of numbers."""
    results = list(tensors)
    kinds: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        kinds.setdefault(tensor.dtype, []).append(place)
    for kind, places in kinds.items():
        sizes = [tensors[place].numel() for place in places]
        if basics.rank() == root:
            flat = torch.cat([tensors[place].reshape(-1) for place in places])
        else:
            flat = torch.empty(sum(sizes), dtype=kind)
        ops.broadcast_(flat, root, f"{name}.{kind}", process_set)
        for place, part in zip(places, flat.split(sizes), strict=True):
            results[place] = part.view(tensors[place].shape)
    return results


def broadcast_global_variables(root_rank: int) -> Any:
    """TensorFlow 2 keeps no list of all variables, except in graphs of the old kind."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. "
            "Please use `hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's value, everywhere: numbers, strings, containers and arrays."""
    return functions.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Everybody's values, by rank."""
    return functions.allgather_object(obj, name, process_set)


__all__ = [
    "allgather_object",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
]
