"""Gradients over all ranks: what a tape and an optimizer have in common.

All gradients of a step go in one op, so that small ones travel together and a step happens whole
or not at all: none of them is there before all are. Where the world can never be another than this
one process, there is nothing to do, and no op.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import torch

from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import call, more_rows, named, same
from midflight.compat.horovod.tensorflow.compression import Compression
from midflight.compat.horovod.tensorflow.mpi_ops import check_sparse, gather_slices, size_op
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.mpi_ops import Average

BAD_GROUPS = "groups should be a non-negative integer or a list of list of tf.Variable."


@dataclass(frozen=True)
class Reduction:
    """How gradients become those of all ranks."""

    op: int = Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    groups: Any = None  # None, how many, or lists of variables
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self) -> None:
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.groups is not None and not (isinstance(self.groups, list) or self.groups > 0):
            raise ValueError(BAD_GROUPS)

    @property
    def scales(self) -> tuple[float, float]:
        """Before and after the mean; the size is not in it, for the world may change."""
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor


def chosen_groups(num_groups: int, groups: Any) -> Any:
    """What the two ways to say it come to."""
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`.",
            DeprecationWarning,
            stacklevel=3,
        )
    return num_groups if num_groups and groups is None else groups


def reduce_gradients(
    gradients: Sequence[Any], variables: Sequence[Any], local: set[int], how: Reduction
) -> list[Any]:
    """None stays None; `local`: ids of variables that every rank trains for itself."""
    results = list(gradients)
    if PROCESS.standing.env is None:
        return results
    shared = []
    for place, gradient in enumerate(gradients):
        if gradient is None:
            continue
        if id(variables[place]) in local:
            results[place] = _scaled(gradient, how)
            continue
        if how.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            results[place] = tf.convert_to_tensor(gradient)
        shared.append(place)
    for place, reduced in _together(results, shared, variables, how).items():
        results[place] = reduced
    return results


def _scaled(gradient: Any, how: Reduction) -> Any:
    """A local gradient counts as much as its share of the global batch."""
    if not how.scale_local_gradients:
        return gradient
    ranks = size_op(how.process_set.process_set_id or 0)
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(ranks, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(ranks, gradient.dtype)


def _together(
    gradients: Sequence[Any], places: Sequence[int], variables: Sequence[Any], how: Reduction
) -> dict[int, Any]:
    """The reduced gradients of these places, by one op."""
    sparse = [place for place in places if isinstance(gradients[place], tf.IndexedSlices)]
    dense = [place for place in places if place not in sparse]
    if not places:
        return {}
    if sparse:
        check_sparse(how.op)
    pairs = [how.compression.compress(tf.convert_to_tensor(gradients[place])) for place in dense]
    inputs = [tensor for tensor, _ in pairs]
    outputs = [same(tensor) for tensor in inputs]
    for place in sparse:
        for part in (gradients[place].values, gradients[place].indices):
            inputs.append(tf.convert_to_tensor(part))
            outputs.append(more_rows(inputs[-1]))
    batches = _batches(dense, variables, how.groups)
    label = named("gradients")

    def work(given: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        return _reduce(given, batches, len(dense), label, how)

    made = call(work, inputs, outputs)
    found = {
        place: how.compression.decompress(tensor, context)
        for place, tensor, (_, context) in zip(dense, made, pairs, strict=False)
    }
    for number, place in enumerate(sparse):
        values, indices = made[len(dense) + 2 * number :][:2]
        found[place] = tf.IndexedSlices(values, indices, gradients[place].dense_shape)
    return found


def _reduce(
    given: list[torch.Tensor],
    batches: Sequence[Sequence[int]],
    dense: int,
    label: str | None,
    how: Reduction,
) -> list[torch.Tensor]:
    """Ask for everything first, then wait. Those behind `dense` are rows and their numbers."""
    results = list(given)
    asked = []
    for number, batch in enumerate(batches):
        name = f"{label}.{number}" if label is not None else None
        tensors = [given[place] for place in batch]
        asked.append(
            ops.grouped_allreduce_async(tensors, None, name, how.op, *how.scales, how.process_set)
        )
    for place in range(dense, len(given), 2):
        name = f"{label}.{place}" if label is not None else None
        results[place : place + 2] = gather_slices(
            given[place], given[place + 1], name, how.op, how.process_set
        )
    for batch, handle in zip(batches, asked, strict=True):
        for place, tensor in zip(batch, ops.synchronize(handle), strict=True):
            results[place] = tensor
    return results


def _batches(dense: Sequence[int], variables: Sequence[Any], groups: Any) -> list[list[int]]:
    """Which dense gradients, by their number among those, are asked for under one name."""
    numbers = list(range(len(dense)))
    if not numbers:
        return []
    if groups is None:
        return [numbers]
    if not isinstance(groups, list):
        count = min(int(groups), len(numbers))
        return [numbers[start::count] for start in range(count)]
    batches: dict[int, list[int]] = {}
    owner = {id(variable): g for g, group in enumerate(groups) for variable in group}
    for number in numbers:
        own = owner.get(id(variables[dense[number]]), len(groups) + number)
        batches.setdefault(own, []).append(number)
    return [batches[key] for key in sorted(batches)]
