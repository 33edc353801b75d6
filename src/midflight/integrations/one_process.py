"""A framework with a launcher of its own is told that this process is the only one.

It would take torchrun's variables for its launcher's, build a process group of a fixed size, and
use the GPUs of the other members. So before it looks, those variables leave the environment, and of
several GPUs only this member's can be seen.
"""

from collections.abc import MutableMapping

import torch

from midflight.errors import UsageError
from midflight.protocol.environment import RANK, SIZE, TORCHRUN, WorkerEnv

DEVICES = "CUDA_VISIBLE_DEVICES"


def set_apart(environ: MutableMapping[str, str]) -> str | None:
    """The backend that the members need, if they can no longer tell by themselves."""
    worker = WorkerEnv.from_env(environ)
    if worker is None:
        return None
    environ[RANK], environ[SIZE] = str(worker.rank), str(worker.size)
    for name in TORCHRUN:
        environ.pop(name, None)
    count = torch.cuda.device_count()
    if count < 2:
        return None
    if torch.cuda.is_initialized():
        raise UsageError(
            f"this process uses CUDA already and sees {count} GPUs, of which one is to be its own: "
            "import midflight.integrations before anything touches a GPU"
        )
    environ[DEVICES] = own_device(environ.get(DEVICES, ""), worker.slot, count)
    return "nccl"


def own_device(visible: str, slot: int, count: int) -> str:
    """The device of a slot, by the name or number that it has in `visible`."""
    names = [name for name in visible.split(",") if name] or [str(n) for n in range(count)]
    return names[slot % count]
