"""What the checks of `together.py` share; and two of them: every type, and wrong requests."""

from collections.abc import Callable
from itertools import product
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def of(rank: int, *shape: int) -> Any:
    """What each rank has; every rank knows it of the others, too."""
    return np.random.default_rng(rank).normal(size=shape or (3, 2)).astype(np.float32)


def equal(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), atol=tolerance, rtol=1e-5)


def raises(kind: type[BaseException], words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"wanted {kind.__name__}")


def in_both_modes(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """At once, and in a graph."""
    return [function(*arguments), tf.function(function)(*arguments)]


def every_type_of_numbers() -> None:
    """And one to three dimensions, for each operation."""
    integers = (tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64)
    floats = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
    reduced: dict[int, Callable[..., Any]] = {
        hvd.Sum: np.sum,
        hvd.Average: np.mean,
        hvd.Min: np.min,
        hvd.Max: np.max,
        hvd.Product: np.prod,
    }
    for dims, kind in product((1, 2, 3), (*integers, *floats, tf.bool)):
        shape = (4, 2, 3)[:dims]
        numbers = np.arange(np.prod(shape)).reshape(shape) % 3
        every = [tf.cast(numbers + 2 * rank, kind) for rank in range(SIZE)]
        mine = every[RANK]

        def check(found: Any, wanted: Any, kind: Any = kind) -> None:
            assert found.dtype == kind
            equal(tf.cast(found, tf.float64), wanted)

        plain = [tf.cast(each, tf.float64).numpy() for each in every]
        check(hvd.allgather(mine), np.concatenate(plain))
        check(hvd.grouped_allgather([mine, mine])[1], np.concatenate(plain))
        check(hvd.broadcast(mine, 1), plain[1])
        half = slice(2 * RANK, 2 * RANK + 2)
        check(hvd.alltoall(mine), np.concatenate([each[half] for each in plain]))
        if kind == tf.bool:
            continue
        for op, reduce in reduced.items():
            wanted = reduce(plain, axis=0)
            check(hvd.allreduce(mine, op=op), wanted)
            check(hvd.grouped_allreduce([mine, mine], op=op)[1], wanted)
            check(hvd.reducescatter(mine, op=op), wanted[half])
            check(hvd.grouped_reducescatter([mine, mine], op=op)[1], wanted[half])


def wrong_requests() -> None:
    """An operation that cannot be done is an error on both ranks, and the next one is done."""
    rows = tf.ones((3, 2))
    for call, words in (
        (lambda: hvd.alltoall(rows, tf.constant([1.0, 2.0])), "splits"),
        (lambda: hvd.alltoall(rows, tf.constant([1, 1, 1])), "splits"),
        (lambda: hvd.alltoall(rows, tf.constant([-1, 4])), "splits"),
        (lambda: hvd.alltoall(rows, tf.constant([[1, 2]])), "splits"),
        (lambda: hvd.alltoall(rows, tf.constant([9, 9])), "18 of 3 rows"),
        (lambda: hvd.alltoall(rows), "divide by 2 ranks, got 3"),
        (lambda: hvd.alltoall(tf.ones((2, RANK + 1))), "Mismatched alltoall tensor shapes"),
        (lambda: hvd.allreduce(tf.ones(RANK + 1)), "Mismatched allreduce tensor shapes"),
        (lambda: hvd.allreduce(tf.ones(2, (tf.int32, tf.float32)[RANK])), "data type"),
        (lambda: hvd.allgather(tf.ones((2, RANK + 1))), "Mismatched allgather tensor shapes"),
        (lambda: hvd.broadcast(rows, 2), "root rank 2"),
        (lambda: hvd.broadcast(rows, RANK), "root rank"),
        (lambda: hvd.reducescatter(tf.ones((2, RANK + 1))), "Mismatched reducescatter"),
    ):
        for way in (call, tf.function(call)):
            raises(Exception, words, way)
            equal(hvd.allreduce(rows, op=hvd.Sum), SIZE * rows)
