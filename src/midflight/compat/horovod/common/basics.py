"""init, shutdown, ranks and sizes, and what was built: the same for every framework."""

import os
from collections.abc import Sequence
from typing import Any

from midflight.compat.horovod.common import process_sets as sets
from midflight.compat.horovod.engine.process import NOT_INITIALISED, PROCESS
from midflight.protocol.world import World


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Take this process's place in the job. On its own, it is a world of one."""
    if comm not in (None, []):
        raise ValueError("there is no MPI here: call hvd.init() without comm")
    before = PROCESS.ready
    PROCESS.init()
    if not before and isinstance(process_sets, Sequence) and not isinstance(process_sets, str):
        sets.make(process_sets)


def shutdown() -> None:
    PROCESS.shutdown()


def is_initialized() -> bool:
    return PROCESS.ready


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    if not PROCESS.ready:
        raise ValueError(NOT_INITIALISED)
    PROCESS.timeline.start(file_path)


def stop_timeline() -> None:
    PROCESS.timeline.stop()


def rank() -> int:
    return PROCESS.standing.rank


def size() -> int:
    return PROCESS.standing.size


def _own() -> tuple[World, str] | None:
    """The world and this member's name in it; None before there is one."""
    standing = PROCESS.standing
    if standing.env is None or not standing.arrived:
        return None
    return standing.world, standing.env.member


def local_rank() -> int:
    own = _own()
    return own[0].local_rank(own[1]) if own else int(os.environ.get("LOCAL_RANK", "0"))


def local_size() -> int:
    own = _own()
    return own[0].local_size(own[1]) if own else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def _across() -> list[str]:
    """The members that have this one's local rank, host by host."""
    own = _own()
    if own is None:
        return [""]
    world, name = own
    place = world.local_rank(name)
    return [other for other in world.names if world.local_rank(other) == place]


def cross_rank() -> int:
    own = _own()
    return _across().index(own[1]) if own else int(os.environ.get("GROUP_RANK", "0"))


def cross_size() -> int:
    own = _own()
    return len(_across()) if own else int(os.environ.get("GROUP_WORLD_SIZE", "1"))


def is_homogeneous() -> bool:
    own = _own()
    return own is None or len({own[0].local_size(name) for name in own[0].names}) == 1


def mpi_threads_supported() -> bool:
    PROCESS.standing  # noqa: B018 - not before init
    return False


def mpi_enabled() -> bool:
    return False


def mpi_built() -> bool:
    return False


def gloo_enabled() -> bool:
    return True


def gloo_built() -> bool:
    return True


def nccl_built() -> int:
    import torch

    return int(torch.distributed.is_nccl_available())


def ddl_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def cuda_built() -> bool:
    import torch

    return torch.version.cuda is not None


def rocm_built() -> bool:
    import torch

    return torch.version.hip is not None


__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
