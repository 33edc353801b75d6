"""The elastic hook, where KungFu's scripts import it from."""

from midflight.compat.kungfu.tensorflow.keras_hook import ElasticHook

__all__ = ["ElasticHook"]
