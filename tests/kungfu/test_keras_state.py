"""A Keras model as the state of a job: what newcomers are given."""

import importlib
import sys
from typing import Any

import numpy as np
import pytest

from midflight.errors import UsageError

pytestmark = pytest.mark.slow  # Keras and its backend take seconds to load


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keras 3 and Keras 2."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # unless another test has loaded Keras
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return pytest.importorskip(request.param, reason="not installed; `make test` installs it")


@pytest.fixture
def state_of() -> Any:
    return importlib.import_module("midflight.compat.kungfu.tensorflow.keras_hook").KerasState


def compiled(keras: Any, model: Any) -> Any:
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    return model


def sequential(keras: Any) -> Any:
    return compiled(keras, keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)]))


def subclassed(keras: Any) -> Any:
    """Its input is a pair."""

    class Model(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(2)

        def call(self, pair: Any) -> Any:
            return self.layer(pair[0]) - self.layer(pair[1])

    return compiled(keras, Model())


def fit(model: Any, x: Any, outputs: int) -> None:
    model.fit(x, np.ones((2, outputs), "float32"), verbose=0)


def test_a_newcomer_whose_model_is_not_built_yet_gets_the_others_weights(
    keras: Any, state_of: Any
) -> None:
    trained, newcomer = sequential(keras), sequential(keras)
    trained.build((None, 4))
    trained.layers[0].set_weights([np.full((4, 3), 7.0), np.zeros(3)])
    state_of(newcomer).load_state_dict(state_of(trained).state_dict())
    assert newcomer.layers[0].get_weights()[0].tolist() == [[7.0] * 3] * 4
    count = len(state_of(newcomer).state_dict()["optimizer"])
    assert count == len(state_of(trained).state_dict()["optimizer"]) > 4


def test_a_model_of_two_inputs_is_built_as_well(keras: Any, state_of: Any) -> None:
    trained, newcomer = subclassed(keras), subclassed(keras)
    x = np.ones((2, 4), "float32")
    fit(trained, [x, 3 * x], 2)
    state_of(newcomer).load_state_dict(state_of(trained).state_dict())
    for found, wanted in zip(newcomer.get_weights(), trained.get_weights(), strict=True):
        assert np.array_equal(found, wanted)
    assert int(newcomer.optimizer.iterations) == 1
    assert newcomer.built, "it is not shared once more, by the newcomer only"
    fit(newcomer, [x, 3 * x], 2)


def test_before_the_first_batch_there_is_nothing_to_hand_over_and_both_can_train_afterwards(
    keras: Any, state_of: Any
) -> None:
    for make, x, outputs in (
        (sequential, np.ones((2, 4), "float32"), 1),
        (subclassed, [np.ones((2, 4), "float32")] * 2, 2),
    ):
        old, newcomer = make(keras), make(keras)
        state_of(newcomer).load_state_dict(state_of(old).state_dict())
        fit(old, x, outputs)
        fit(newcomer, x, outputs)


def test_a_model_that_keras_cannot_build_is_an_error_that_says_what_to_do(
    keras: Any, state_of: Any
) -> None:
    class Stubborn(keras.Model):  # type: ignore[misc]
        """A shape is not enough to build it."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.layer(x)

        def build_from_config(self, config: Any) -> None:
            raise NotImplementedError("from a value")

    trained, newcomer = compiled(keras, Stubborn()), compiled(keras, Stubborn())
    trained(np.ones((2, 4), "float32"))
    with pytest.raises(UsageError, match=r"has 0 weights, .* others have 2; call the model on one"):
        state_of(newcomer).load_state_dict(state_of(trained).state_dict())


def test_a_callback_is_one_of_keras_2_where_that_is_loaded_since_keras_3_takes_both(
    keras: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = importlib.import_module("midflight.compat.keras_versions")
    if keras.__name__ == "keras":
        monkeypatch.delitem(sys.modules, "tf_keras", raising=False)
    assert versions.callback() is keras.callbacks.Callback
    model = sequential(keras)
    seen = []

    class Watch(versions.callback()):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(self.model)

    x = np.ones((2, 4), "float32")
    model.fit(x, np.ones((2, 1), "float32"), verbose=0, callbacks=[Watch()])
    assert seen == [model]
