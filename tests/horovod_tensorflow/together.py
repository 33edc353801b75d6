"""Run by two ranks: everything that both do together, compared with numpy or with one process.

Each check prints a line when it has passed.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
from checking import (
    RANK,
    SIZE,
    equal,
    every_type_of_numbers,
    in_both_modes,
    of,
    raises,
    wrong_requests,
)

keras: Any = tf.keras  # 3 or 2
NEW = hasattr(keras, "Variable")  # it is Keras 3
OTHER = 1 - RANK


# --- collectives ---------------------------------------------------------------------------


def reductions() -> None:
    mine, both = tf.constant(of(RANK)), np.stack([of(0), of(1)])
    wanted = {
        hvd.Average: both.mean(0),
        hvd.Sum: both.sum(0),
        hvd.Min: both.min(0),
        hvd.Max: both.max(0),
        hvd.Product: both.prod(0),
    }
    for op, values in wanted.items():
        for found in in_both_modes(lambda t, op=op: hvd.allreduce(t, op=op), mine):
            equal(found, values)
    equal(hvd.allreduce(mine), both.mean(0))
    equal(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5), both.sum(0))
    equal(hvd.allreduce(mine, compression=hvd.Compression.fp16), both.mean(0), 1e-2)
    equal(hvd.allreduce(tf.constant(of(0)), op=hvd.Adasum), of(0))  # of equals: the same
    raises(ValueError, "supersedes", lambda: hvd.allreduce(mine, average=True, op=hvd.Sum))
    for kind in (tf.bfloat16, tf.float16, tf.float64, tf.int32, tf.int64, tf.uint8):
        (found, again) = in_both_modes(hvd.allreduce, tf.cast([2, 4], kind))
        assert found.dtype == again.dtype == kind
        equal(tf.cast(again, tf.float32), [2, 4])
    for first, second in in_both_modes(
        lambda a, b: hvd.grouped_allreduce([a, b], op=hvd.Sum), mine, tf.constant([RANK, 5])
    ):
        equal(first, both.sum(0))
        equal(second, [1, 10])


def sparse_reductions() -> None:
    def reduce(values: Any, indices: Any) -> Any:
        slices = tf.IndexedSlices(values, indices, tf.constant([4, 2]))
        return tf.convert_to_tensor(hvd.allreduce(slices))

    wanted = np.zeros((4, 2), np.float32)
    for rank in range(SIZE):
        wanted[rank : rank + 2] += of(rank, 2, 2) / SIZE
    for found in in_both_modes(reduce, tf.constant(of(RANK, 2, 2)), tf.constant([RANK, RANK + 1])):
        equal(found, wanted)
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([0]))
    raises(NotImplementedError, "sparse tensors", lambda: hvd.allreduce(slices, op=hvd.Adasum))


def gathering_and_sharing_out() -> None:
    mine = tf.constant(of(RANK, RANK + 1, 2))  # not as many rows on each
    whole = np.concatenate([of(0, 1, 2), of(1, 2, 2)])
    for found in in_both_modes(hvd.allgather, mine):
        equal(found, whole)
    equal(hvd.allgather(tf.constant(RANK)), [0, 1])
    for found in in_both_modes(lambda t: hvd.broadcast(t, 1), tf.constant(of(RANK))):
        equal(found, of(1))
    variable = tf.Variable(of(RANK))
    equal(hvd.broadcast_(variable, 0), of(0))
    rows = tf.constant(of(RANK, 3, 2))
    splits = tf.constant([1, 2])
    wanted = np.concatenate([of(r, 3, 2)[:1] if RANK == 0 else of(r, 3, 2)[1:] for r in (0, 1)])
    for found, received in in_both_modes(hvd.alltoall, rows, splits):
        equal(found, wanted)
        equal(received, [RANK + 1] * 2)
    equal(hvd.alltoall(tf.constant([RANK, RANK])), [0, 1])
    total = of(0, 3, 2) + of(1, 3, 2)
    for found in in_both_modes(lambda t: hvd.reducescatter(t, op=hvd.Sum), rows):
        equal(found, total[:2] if RANK == 0 else total[2:])
    assert [int(n) for n in in_both_modes(lambda: hvd.size_op())] == [2, 2]
    assert [int(n) for n in in_both_modes(lambda: hvd.rank_op())] == [RANK, RANK]


def gradients_of_collectives() -> None:
    factors = tf.constant(of(7, 3, 2))

    def of_gather(mine: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(mine)
            total = tf.reduce_sum(hvd.allgather(mine) * factors)
        return tape.gradient(total, mine)

    for found in in_both_modes(of_gather, tf.constant(of(RANK, RANK + 1, 2))):
        equal(found, factors[:1] if RANK == 0 else factors[1:])

    def of_collective(collective: Callable[[Any], Any]) -> list[Any]:
        def gradient(mine: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(mine)
                total = tf.reduce_sum(collective(mine) * (RANK + 1.0))
            return tape.gradient(total, mine)

        found: list[Any] = in_both_modes(gradient, tf.constant([1.0, 2.0]))
        return found

    for found in of_collective(lambda mine: hvd.allreduce(mine, op=hvd.Sum)):
        equal(found, [3.0, 3.0])
    for found in of_collective(lambda mine: hvd.broadcast(mine, 0)):
        equal(found, [1.5, 1.5] if RANK == 0 else [0.0, 0.0])
    for found in [*of_collective(hvd.alltoall), *of_collective(hvd.reducescatter)]:
        equal(found, [1.0, 2.0])


def names_orders_and_sets() -> None:
    """Threads may submit in any order, objects travel, a rank may be alone, one may be late."""
    with ThreadPoolExecutor(2) as pool:
        order = ["a", "b"] if RANK == 0 else ["b", "a"]
        totals = pool.map(lambda n: hvd.allreduce(tf.constant(1.0), name=n, op=hvd.Sum), order)
        assert [float(total) for total in totals] == [2.0, 2.0]
    wanted = {"rank": 1, "list": [1, "x"]}
    assert hvd.broadcast_object({"rank": RANK, "list": [1, "x"]}, 1) == wanted
    assert hvd.allgather_object(("r", RANK)) == [("r", 0), ("r", 1)]
    kept = [
        tf.Variable(of(RANK)),
        (keras if NEW else tf).Variable(of(RANK, 2)),
        tf.Variable([RANK]),
    ]
    hvd.broadcast_variables(kept, root_rank=1)
    for variable, wanted in zip(kept, (of(1), of(1, 2), [1]), strict=True):
        equal(variable, wanted)
    tf.function(lambda: hvd.broadcast_variables([kept[0]], root_rank=0))()
    equal(kept[0], of(1))
    many = tf.function(lambda: [hvd.allreduce(tf.constant(float(n)), op=hvd.Sum) for n in range(9)])
    assert [float(total) for total in many()] == [2.0 * n for n in range(9)]
    only = hvd.add_process_set([0])
    if RANK == 0:
        equal(hvd.allreduce(tf.constant([3.0]), process_set=only, op=hvd.Sum), [3.0])
    hvd.barrier()
    assert hvd.remove_process_set(only)
    if RANK == 0:
        equal(hvd.allreduce(tf.constant([3.0]), name="late", op=hvd.Sum), [3.0])
    assert hvd.join() in (0, 1)
    raises(RuntimeError, "broadcast_variables", lambda: hvd.broadcast_global_variables(0))
    raises(AttributeError, "'nothing_of_the_kind'", lambda: hvd.nothing_of_the_kind)


# --- training ------------------------------------------------------------------------------

INPUTS, LABELS = of(11, 8, 4), of(12, 8, 1)
HALF = slice(RANK * 4, RANK * 4 + 4)


def model(optimizer: Any = None, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    made = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)]
    )
    if optimizer is not None:
        made.compile(optimizer=optimizer, loss="mse")
    return made


def plain(steps: int, rate: float = 0.1) -> list[Any]:
    """The weights of one process that trains with everything."""
    alone = model()
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((alone(INPUTS) - LABELS) ** 2)
        gradients = tape.gradient(loss, alone.trainable_variables)
        optimizer.apply_gradients(zip(gradients, alone.trainable_variables, strict=True))
    return list(alone.get_weights())


def weights_equal(found: Any, wanted: list[Any]) -> None:
    for one, other in zip(found.get_weights(), wanted, strict=True):
        equal(one, other, 1e-5)


def tape_equals_one_process() -> None:
    for options in (
        {"groups": 2},
        {"gradient_predivide_factor": 2.0, "sparse_as_dense": True},
    ):
        trained = model()
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)

        def step(trained: Any = trained, optimizer: Any = optimizer, how: Any = options) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((trained(INPUTS[HALF]) - LABELS[HALF]) ** 2)
            tape = hvd.DistributedGradientTape(tape, **how)
            gradients = tape.gradient(loss, trained.trainable_variables)
            optimizer.apply_gradients(zip(gradients, trained.trainable_variables, strict=True))

        optimizer.build(trained.trainable_variables)
        step()
        in_graph = tf.function(step)
        in_graph()
        in_graph()
        weights_equal(trained, plain(3))
    rows = tf.Variable(tf.zeros((4, 2)))
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        tape.register_local_source(kept := tf.Variable(1.0))
        loss = tf.reduce_sum(tf.gather(rows, [RANK])) + kept
    found = tape.gradient(loss, {"rows": rows, "kept": kept, "none": tf.Variable(1.0)})
    assert isinstance(found["rows"], tf.IndexedSlices)
    equal(tf.convert_to_tensor(found["rows"]), [[0.5, 0.5]] * 2 + [[0.0, 0.0]] * 2)
    equal(found["kept"], 0.5)
    assert found["none"] is None
    raises(
        ValueError,
        "gradient_predivide_factor",
        lambda: hvd.DistributedGradientTape(tape, op=hvd.Sum, gradient_predivide_factor=2.0),
    )


def optimizer_equals_one_process() -> None:
    original = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(original, compression=hvd.Compression.none)
    assert isinstance(optimizer, keras.optimizers.SGD)
    assert type(optimizer).__name__ == "SGD"
    trained = model(optimizer)
    fit = {"epochs": 3, "batch_size": 4, "shuffle": False, "verbose": 0}
    trained.fit(INPUTS[HALF], LABELS[HALF], **fit)
    weights_equal(trained, plain(3))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved.keras")
        trained.save(path)
        assert type(keras.models.load_model(path).optimizer) is keras.optimizers.SGD
        loaded = hvd_keras.load_model(path)
    assert int(loaded.optimizer.iterations) == 3
    loaded.fit(INPUTS[HALF], LABELS[HALF], **fit | {"epochs": 2})
    weights_equal(loaded, plain(5))
    if NEW:
        tf.config.list_physical_devices = lambda *_: [SimpleNamespace(device_type="GPU")]
        compiled = [made._resolve_auto_jit_compile() for made in (trained, model(original))]
        assert compiled == [False, True], "a step that calls Python is not for XLA"
    raises(ValueError, "Average and Sum", lambda: hvd.DistributedOptimizer(original, op=hvd.Adasum))
    raises(ValueError, "doesn't inherit", lambda: hvd.DistributedOptimizer("sgd"))


def several_passes_make_one_step() -> None:
    """Two passes of two rows each on both ranks are one step with all eight rows."""
    optimizer = hvd_keras.DistributedOptimizer(
        keras.optimizers.SGD(0.1, momentum=0.9),
        backward_passes_per_step=2,
        average_aggregated_gradients=True,
    )
    trained = model(optimizer)
    options = {"epochs": 3, "batch_size": 2, "shuffle": False, "verbose": 0}
    trained.fit(INPUTS[HALF], LABELS[HALF], **options)
    weights_equal(trained, plain(3))
    assert int(optimizer.iterations) == 6


def half_precision_leaves_out_the_same_steps() -> None:
    """Where one rank's gradients are not finite, no rank takes the step, and nobody waits."""
    if not NEW:
        return  # not promised
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    trained = model()
    trained.compile(optimizer=keras.optimizers.LossScaleOptimizer(optimizer), loss="mse")
    rows = INPUTS[HALF].copy()
    rows[0, 0] = np.inf if RANK == 0 else 1.0  # in the first of two batches, on one rank
    trained.fit(rows, LABELS[HALF], batch_size=2, shuffle=False, verbose=0)
    assert int(optimizer.iterations) == 1
    state = hvd.elastic.TensorFlowKerasState(trained)
    assert state.version() == 1
    totals = hvd.allgather_object([float(np.sum(weight)) for weight in trained.get_weights()])
    assert totals[0] == totals[1]
    assert np.isfinite(totals[0]).all()


def batch_norm_of_all_rows() -> None:
    layer = hvd.SyncBatchNormalization()
    found = tf.function(layer)(tf.constant(INPUTS[HALF]), training=True)
    wanted = (INPUTS - INPUTS.mean(0)) / np.sqrt(INPUTS.var(0) + layer.epsilon)
    equal(found, wanted[HALF], 1e-5)


def callbacks_of_fit() -> None:
    """Different weights become the root's; metrics are averaged; the rate warms up."""
    trained = model(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.2)), seed=RANK)
    seen: list[dict[str, Any]] = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(dict(logs))

    trained.fit(
        INPUTS[HALF],
        LABELS[HALF],
        epochs=4,
        batch_size=2,
        verbose=0,
        callbacks=[
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
            hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.2, warmup_epochs=2),
            hvd_keras.callbacks.LearningRateScheduleCallback(0.2, 0.1, start_epoch=3),
            Watch(),
        ],
    )
    everybody = hvd.allgather_object([[float(logs["loss"]) for logs in seen],
                                      [w.tolist() for w in trained.get_weights()]])  # fmt: skip
    assert everybody[0] == everybody[1]
    equal([logs["lr"] for logs in seen], [0.15, 0.2, 0.2, 0.2 * 0.1**3])
    import horovod.keras

    assert horovod.keras.callbacks.MetricAverageCallback is (
        hvd_keras.callbacks.MetricAverageCallback
    )
    equal(horovod.keras.allreduce([1.0 * RANK]), [0.5])
    raises(AttributeError, "nothing", lambda: horovod.keras.callbacks.nothing)


def errors_in_graphs() -> None:
    """What the others cannot take part in is an error, there as well, and says what is wrong."""
    from horovod.common.exceptions import HorovodInternalError
    from horovod.tensorflow.elastic import failure

    shape = (RANK + 1,)

    @tf.function
    def mismatched() -> Any:
        return hvd.allreduce(tf.ones(shape), name="mismatched")

    try:
        mismatched()
    except tf.errors.OpError as error:
        found = failure(error)
        assert isinstance(found, HorovodInternalError)
        assert "Mismatched" in str(found), found
    else:
        raise AssertionError("wanted an error")
    other = tf.errors.UnknownError(None, None, "something about the weather")
    assert failure(other) is None

    def train(state: Any) -> str:
        if state.batch == 1:
            raise other
        return "done"

    state = hvd.elastic.TensorFlowState([tf.Variable([float(RANK)])], batch=RANK)
    assert hvd.elastic.run(train)(state) == "done"
    equal(state.variables[0], [0.0])
    assert state.version() is None
    state.variables[0].assign([5.0])
    state.restore()
    equal(state.variables[0], [0.0])
    state.batch = 1
    raises(tf.errors.UnknownError, "the weather", lambda: hvd.elastic.run(train)(state))
    unbuilt = keras.Sequential([keras.layers.Dense(1)])
    raises(ValueError, "built first", lambda: hvd.elastic.TensorFlowKerasState(unbuilt))


def first_collective_in_a_second_trace() -> None:
    """As in Horovod's own example: the first trace builds the model and reduces nothing."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(2)])

    @tf.function
    def step(x: Any, allreduce: bool = True) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        if allreduce:
            tape = hvd.DistributedGradientTape(tape)
        return tape.gradient(loss, model.trainable_variables)

    mine, both = tf.constant(of(RANK)), np.stack([of(0), of(1)])
    step(mine, allreduce=False)
    equal(step(mine)[0], np.stack([both.sum(1).mean(0)] * 2, 1))


def names_that_keras_3_removed() -> None:
    """They work with Keras 2; with Keras 3 the error says how to get that."""
    optimizer = keras.optimizers.SGD(0.25)

    def compile_as_of_old() -> None:
        model().compile(optimizer=optimizer, loss="mse", experimental_run_tf_function=False)

    if not NEW:
        equal(optimizer.lr, 0.25)
        assert optimizer.variables()
        compile_as_of_old()
        return
    assert not hasattr(optimizer, "lr")
    raises(AttributeError, "TF_USE_LEGACY_KERAS=1", lambda: optimizer.lr)
    raises(TypeError, "TF_USE_LEGACY_KERAS=1", lambda: optimizer.variables())
    raises(TypeError, "TF_USE_LEGACY_KERAS=1", compile_as_of_old)
    assert list(optimizer.variables)


def names_of_tensorflow_1() -> None:
    """The error says which page shows how a script with sessions becomes one without."""
    for module, name in ((tf, "ConfigProto"), (tf, "Session"), (tf.train, "AdamOptimizer")):
        assert not hasattr(module, name)
        page = "coming-from-horovod.md#tensorflow-1"
        raises(AttributeError, page, lambda module=module, name=name: getattr(module, name))


CHECKS = (
    first_collective_in_a_second_trace,
    reductions,
    sparse_reductions,
    gathering_and_sharing_out,
    every_type_of_numbers,
    wrong_requests,
    gradients_of_collectives,
    names_orders_and_sets,
    tape_equals_one_process,
    optimizer_equals_one_process,
    several_passes_make_one_step,
    half_precision_leaves_out_the_same_steps,
    batch_norm_of_all_rows,
    callbacks_of_fit,
    errors_in_graphs,
    names_that_keras_3_removed,
    names_of_tensorflow_1,
)

if __name__ == "__main__":
    assert SIZE == 2
    for check in CHECKS:
        check()
        print("passed:", check.__name__, flush=True)
    sys.exit(0)
