"""`kungfu.tensorflow.v1`: the helpers that scripts for TensorFlow 2 import as well."""

import contextlib
import importlib

from midflight.compat import tensorflow_1

with contextlib.suppress(ModuleNotFoundError):  # data can be read without TensorFlow
    tensorflow_1.explain(importlib.import_module("tensorflow"), tensorflow_1.KUNGFU_PAGE)
