"""The variables a worker gets under torchrun, beside those of Midflight.

The order of the coordinator brings ranks and sizes. It comes from another machine, so nothing else
is taken from it: no variable that could change what a worker runs.
"""

from collections.abc import Mapping
from pathlib import Path

from midflight.compat.torchelastic.options import Options
from midflight.protocol.environment import JOINER
from midflight.protocol.messages import StartMember

ASYNC_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
THREADS = "OMP_NUM_THREADS"
FROM_COORDINATOR = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", JOINER),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    "TORCHELASTIC_USE_AGENT_STORE",
)


def threads_are_set(environ: Mapping[str, str], options: Options) -> bool:
    """Whether workers that share this machine are given one thread each."""
    return THREADS not in environ and options.nproc > 1


def base_environment(environ: Mapping[str, str], options: Options) -> dict[str, str]:
    """What all workers of this node have in common."""
    made = {
        ASYNC_ERRORS: "1",
        **environ,
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(number.name for number in options.signals),
    }
    if threads_are_set(environ, options):
        made[THREADS] = "1"
    return made


def worker_environment(
    order: StartMember, options: Options, error_file: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    told = {name: order.environment[name] for name in FROM_COORDINATOR if name in order.environment}
    told["ROLE_NAME"] = options.role
    if options.rendezvous.workers_port is not None:
        told["MASTER_PORT"] = str(options.rendezvous.workers_port)
    told["TORCHELASTIC_ERROR_FILE"] = str(error_file)
    if options.virtual_local_rank:
        told["CUDA_VISIBLE_DEVICES"] = _own_device(order.slot, environ)
        told["LOCAL_RANK"] = "0"
    return told


def _own_device(slot: int, environ: Mapping[str, str]) -> str:
    seen = [part for part in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
    return seen[slot] if slot < len(seen) else str(slot)
