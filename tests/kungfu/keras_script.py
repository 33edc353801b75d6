"""A script with the hook for Keras, 3 on its torch backend or 2; it grows from one worker to two.

The first batch builds the model, and a newcomer has not seen it. Nothing of KungFu is called before
`fit`, so a worker joins in there.
"""

import importlib
import os
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"

import numpy as np
from kungfu.tensorflow.hook import ElasticHook

keras: Any = importlib.import_module(
    "tf_keras" if os.environ["TF_USE_LEGACY_KERAS"] == "1" else "keras"
)
model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
model.compile(optimizer=optimizer, loss="mse", run_eagerly=True)
hook = ElasticHook(10, epochs=1, epoch_size=200, schedule="1:4,2:100")
x = np.random.default_rng(os.getpid()).normal(size=(2000, 4)).astype("float32")
model.fit(x, x.sum(axis=1), batch_size=10, epochs=1, verbose=0, callbacks=[hook])
weights = " ".join(f"{weight:.7f}" for weight in model.get_weights()[0].ravel())
print(
    f"steps {hook.progress.step} counted {int(optimizer.iterations)} weights {weights}", flush=True
)
