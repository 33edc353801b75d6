"""`kungfu.ext`: the older name of parts of `kungfu.python`."""

from midflight.compat.kungfu.python import (
    current_cluster_size,
    current_local_rank,
    current_rank,
    propose_new_size,
    run_barrier,
    uid,
)

__all__ = [
    "current_cluster_size",
    "current_local_rank",
    "current_rank",
    "propose_new_size",
    "run_barrier",
    "uid",
]
