"""A Keras model as the state of a job: what newcomers are given."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # Keras and its backend take seconds to load


def test_a_newcomer_whose_model_is_not_built_yet_gets_the_others_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # unless another test has loaded Keras
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    from midflight.compat.kungfu.tensorflow.keras_hook import KerasState

    trained, newcomer = (
        keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)]) for _ in range(2)
    )
    for model in (trained, newcomer):
        model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    trained.build((None, 4))
    trained.layers[0].set_weights([np.full((4, 3), 7.0), np.zeros(3)])
    KerasState(newcomer).load_state_dict(KerasState(trained).state_dict())
    assert newcomer.layers[0].get_weights()[0].tolist() == [[7.0] * 3] * 4
    assert len(newcomer.optimizer.variables) == len(trained.optimizer.variables)
