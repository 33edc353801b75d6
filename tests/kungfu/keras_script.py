"""A script with the hook for Keras, over a fake one: grows from one worker to two on the way."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("fake_keras")))

import keras
import kungfu.python as kfpy
from kungfu.tensorflow.hook import ElasticHook


def gain() -> float:
    """The mean over two workers is 1, as is that of one alone."""
    time.sleep(0.01)
    return 1.0 if kfpy.current_size() == 1 else 2.0 * kfpy.current_rank()


model = keras.Model()
hook = ElasticHook(10, epochs=1, epoch_size=200, schedule="1:4,2:100")
model.fit(hook, gain, 1000)
weight, count = model.get_weights()[0][0], model.optimizer.variables[0].numpy()[0]
print(f"weight {weight:.0f} counted {count:.0f} steps {hook.progress.step}", flush=True)
