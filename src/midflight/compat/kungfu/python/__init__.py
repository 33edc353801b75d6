"""`kungfu.python`: who this worker is, and how the cluster changes its size.

`resize()` once a step is where changes happen: it says whether the cluster is another one now, and
whether this worker is out of it. Nothing communicates before the first of these functions is used.
"""

from typing import NoReturn

from midflight.compat.aliasing import missing
from midflight.compat.kungfu import sizes
from midflight.compat.kungfu.peer import peer

__all__ = [
    "all_reduce_int_max",
    "all_reduce_int_min",
    "all_reduce_int_sum",
    "barrier",
    "change_cluster",
    "current_cluster_size",
    "current_local_rank",
    "current_local_size",
    "current_rank",
    "current_size",
    "detached",
    "init_progress",
    "progress",
    "propose_new_size",
    "rank",
    "resize",
    "run_barrier",
    "size",
    "uid",
]


def uid() -> int:
    """A number that no other worker of this job has or will have; it stays the same."""
    return peer().number << 16


def current_rank() -> int:
    return peer().rank


def current_cluster_size() -> int:
    return peer().size


def current_local_rank() -> int:
    return peer().local_rank


def current_local_size() -> int:
    return peer().local_size


rank, size, current_size = current_rank, current_cluster_size, current_cluster_size


def detached() -> bool:
    """Whether the cluster goes on without this worker."""
    return peer().detached


def run_barrier() -> None:
    """Wait until all workers are here."""
    peer().reduce_int(0, "max")


barrier = run_barrier


def all_reduce_int_max(x: int) -> int:
    return peer().reduce_int(int(x), "max")


def all_reduce_int_min(x: int) -> int:
    return peer().reduce_int(int(x), "min")


def all_reduce_int_sum(x: int) -> int:
    return peer().reduce_int(int(x), "sum")


def resize(n: int | None = None) -> tuple[bool, bool]:
    """(changed, detached). With a size: ask for it and wait. Without: follow what was asked for."""
    return sizes.follow(peer()) if n is None else sizes.resize(peer(), int(n))


def propose_new_size(new_size: int) -> None:
    """Ask for a size; the next `resize()` of all workers waits for the change."""
    sizes.propose(peer(), int(new_size))


def change_cluster(progress: int) -> tuple[bool, bool]:
    """As `resize()`, telling how far this worker is. Workers stay, none is started anew."""
    peer().progress = int(progress)
    return sizes.follow(peer())


def init_progress() -> int:
    """How far the job was when this worker came."""
    peer().arrive()
    return peer().progress


def progress() -> int:
    """How far the job is, as told to `change_cluster` or counted by an ElasticState."""
    return peer().progress


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.python", name)
