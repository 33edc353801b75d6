"""`horovod.keras`: with Keras 3 the same as `horovod.tensorflow.keras`."""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.tensorflow import keras as _same
from midflight.compat.horovod.tensorflow.keras import *  # noqa: F403


def __getattr__(name: str) -> Any:
    missing("horovod.keras", name)


__all__ = _same.__all__
