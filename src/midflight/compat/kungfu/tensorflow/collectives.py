"""Collectives on TensorFlow's tensors, over the cluster of the moment; also inside a tf.function.

They are those of `kungfu.torch`: in a graph an op calls Python, and the values pass through the
host's memory. Those of one graph run one after the other, in the order of the program.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf
import torch
from torch import Tensor

from midflight.compat import tensorflow_1
from midflight.compat.horovod.tensorflow.bridge import as_written, call, same
from midflight.compat.kungfu import sizes
from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.torch.ops.collective import all_gather as torch_gather
from midflight.compat.kungfu.torch.ops.collective import all_reduce_fn, broadcast_all

tensorflow_1.explain(tf, tensorflow_1.KUNGFU_PAGE)


@as_written
def all_reduce(x: Any, op: str = "sum") -> Any:
    """The sum (or `op`) over all workers."""
    (result,) = group_all_reduce([x], op)
    return result


@as_written
def group_all_reduce(ts: Sequence[Any], op: str = "sum") -> list[Any]:
    values = [tf.convert_to_tensor(t) for t in ts]

    def work(tensors: list[Tensor]) -> list[Tensor]:
        return [all_reduce_fn(tensor, op) for tensor in tensors]

    return call(work, values, [same(value) for value in values])


@as_written
def broadcast(x: Any) -> Any:
    """The value that rank 0 has."""
    value = tf.convert_to_tensor(x)
    (result,) = call(partial(broadcast_all, root=0), [value], [same(value)])
    return result


@as_written
def all_gather(x: Any) -> Any:
    """The values of all workers, stacked in the order of their ranks."""
    value = tf.convert_to_tensor(x)
    spec = tf.TensorSpec([None, *value.shape], value.dtype)
    (result,) = call(lambda tensors: [torch_gather(tensors[0])], [value], [spec])
    return result


@as_written
def broadcast_variables(variables: Iterable[Any]) -> None:
    """Every variable becomes that of rank 0."""
    kept = list(variables)
    values = [tf.convert_to_tensor(variable) for variable in kept]
    results = call(partial(broadcast_all, root=0), values, [same(v) for v in values])
    for variable, result in zip(kept, results, strict=True):
        variable.assign(result)


@as_written
def resize(n: Any = None) -> Any:
    """Whether the cluster is another one now; `detached()` says whether this worker is out of it.

    With a size: ask for it and wait. Without: follow what was asked for.
    """
    wanted = tf.constant(0) if n is None else tf.cast(n, tf.int32)

    def work(tensors: list[Tensor]) -> list[Tensor]:
        size = int(tensors[0])
        changed, _ = sizes.resize(peer(), size) if size else sizes.follow(peer())
        return [torch.tensor(changed)]

    (changed,) = call(work, [wanted], [tf.TensorSpec((), tf.bool)])
    return changed
