"""What of `kungfu.tensorflow.ops` needs no graph: ranks, sizes and schedules."""

from typing import NoReturn

from midflight.compat.aliasing import missing
from midflight.compat.kungfu.python import current_cluster_size, current_rank, resize, run_barrier
from midflight.compat.kungfu.schedule import step_based_schedule

barrier = run_barrier

__all__ = ["barrier", "current_cluster_size", "current_rank", "resize", "step_based_schedule"]


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.tensorflow.ops", name)
