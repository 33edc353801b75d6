"""Tensors of TensorFlow through the collectives of torch, and back.

A tensor becomes an array and the array a torch tensor of the same memory. In a graph this happens
in an op that calls Python, one op for as many tensors as belong together. Collectives are matched
by name; one in a graph is named when the graph is made, by its place in it, so that ranks agree
whatever else they have traced. Those of a graph run one after the other, in the order of the
program: each waits in a thread of TensorFlow's, of which there may be only one. Everything goes
through the host's memory, also what lies on a GPU, and XLA cannot compile it.
"""

import functools
import re
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf
import torch
from torch import Tensor

from midflight.compat.horovod.common.process_sets import ProcessSet
from midflight.compat.horovod.engine.process import PROCESS

Function = TypeVar("Function", bound=Callable[..., Any])
Work = Callable[[list[Tensor]], Sequence[Tensor]]

_BFLOAT16 = tf.bfloat16.as_numpy_dtype
_counts: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()

# What TensorFlow lends is not to be written to, and nobody does.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


def as_written(function: Function) -> Function:
    """AutoGraph, which rewrites what a tf.function calls, is to leave this alone."""
    left = tf.autograph.experimental.do_not_convert(function)
    return cast(Function, functools.wraps(function)(left))


def to_torch(array: Any) -> Tensor:
    given = np.asarray(array)
    if given.dtype == _BFLOAT16:
        return torch.from_numpy(given.view(np.int16)).view(torch.bfloat16)
    if given.dtype.kind not in "fiub":
        raise ValueError(f"Tensor type {given.dtype} is not supported.")
    return torch.from_numpy(given)


def to_numpy(tensor: Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(_BFLOAT16)
    return tensor.numpy()


def call(work: Work, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """`work` on the values of the inputs, now or whenever the graph runs.

    `outputs`: the specs of what it gives.
    """
    if tf.executing_eagerly():
        results = work([to_torch(value) for value in inputs])
        return [tf.convert_to_tensor(to_numpy(result)) for result in results]

    @as_written
    def on_arrays(_: Any, *arrays: Any) -> list[Any]:
        return [to_numpy(result) for result in work([to_torch(array) for array in arrays])]

    turn = _turn() if tf.compat.v1.get_default_graph().building_function else None
    before = tf.constant(0) if turn is None else turn.read_value()
    made = tf.numpy_function(on_arrays, [before, *inputs], [spec.dtype for spec in outputs])
    if turn is not None:
        with tf.control_dependencies(made):
            turn.assign_add(1)
    for tensor, spec in zip(made, outputs, strict=True):
        tensor.set_shape(spec.shape)
    return list(made)


@functools.cache
def _turn() -> Any:
    """Read before a collective and written after it, so that TensorFlow keeps them in order.

    Made in a thread of its own, where no function is being traced: a function that is traced
    again may not make variables.
    """

    def make() -> Any:
        with tf.device("/CPU:0"):
            return tf.Variable(0, trainable=False, dtype=tf.int32)

    with ThreadPoolExecutor(1) as outside:
        return outside.submit(make).result()


def same(tensor: Any) -> Any:
    """The spec of a result that is like this tensor."""
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def more_rows(tensor: Any) -> Any:
    """The spec of a result that is like this tensor, but for the number of its rows."""
    if tensor.shape.rank is None:
        return tf.TensorSpec(None, tensor.dtype)
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def named(kind: str, name: str | None = None) -> str | None:
    """The caller's name, or in a graph the op's place in it. None: count when it is called."""
    if name is not None or tf.executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    counts = _counts.setdefault(graph, Counter())
    counts[kind] += 1
    # Names of branches and of gradients end in numbers that count what this process has traced.
    place = re.sub(r"[\d_]+$", "", getattr(graph, "name", "graph"))
    return f"{place}.{counts[kind]}"


def differentiable(
    work: Work, inputs: Sequence[Any], outputs: Sequence[Any], gradient: Callable[..., Any]
) -> list[Any]:
    """Like `call`; `gradient` makes the inputs' gradients from those of the results."""

    def carried(*tensors: Any) -> Any:
        return call(work, tensors, outputs), gradient

    return list(tf.custom_gradient(carried)(*inputs))


def dense(gradients: Sequence[Any]) -> list[Any]:
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def members(process_set: ProcessSet) -> int:
    """How many ranks take part, now; a newcomer is alone until its training function begins."""
    return process_set.size() if PROCESS.standing.arrived else 1
