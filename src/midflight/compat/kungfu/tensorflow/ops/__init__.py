"""`kungfu.tensorflow.ops`: ranks, sizes and schedules, and collectives, which load TensorFlow."""

import importlib
from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.kungfu.python import current_cluster_size, current_rank, run_barrier
from midflight.compat.kungfu.schedule import step_based_schedule

barrier = run_barrier
_LOADED_LATER = ("all_gather", "all_reduce", "broadcast", "group_all_reduce", "resize")

__all__ = ["barrier", "current_cluster_size", "current_rank", "step_based_schedule"]


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        missing("kungfu.tensorflow.ops", name)
    collectives = importlib.import_module("midflight.compat.kungfu.tensorflow.collectives")
    return getattr(collectives, name)
