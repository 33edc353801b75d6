"""A script with the hook for Keras, on its torch backend; it grows from one worker to two."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import kungfu.python as kfpy
import numpy as np
from kungfu.tensorflow.hook import ElasticHook

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)])
optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
model.compile(optimizer=optimizer, loss="mse", run_eagerly=True)
hook = ElasticHook(10, epochs=1, epoch_size=200, schedule="1:4,2:100")
x = np.random.default_rng(kfpy.current_rank()).normal(size=(2000, 4))
model.fit(x, x.sum(axis=1), batch_size=10, epochs=1, verbose=0, callbacks=[hook])
weights = " ".join(f"{weight:.7f}" for weight in model.get_weights()[0].ravel())
print(
    f"steps {hook.progress.step} counted {int(optimizer.iterations)} weights {weights}", flush=True
)
