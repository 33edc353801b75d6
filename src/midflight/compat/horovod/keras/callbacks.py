"""`horovod.keras.callbacks`: those of `horovod.tensorflow.keras`."""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.tensorflow.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)


def __getattr__(name: str) -> Any:
    missing("horovod.keras.callbacks", name)


__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
