"""`horovod.keras.elastic`: that of `horovod.tensorflow.keras`."""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.tensorflow.keras.elastic import (
    CommitStateCallback,
    KerasState,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
    run,
)


def __getattr__(name: str) -> Any:
    missing("horovod.keras.elastic", name)


__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
