"""Prints what the launcher tells each worker, then makes a process group of all of them."""

import os
import sys
from pprint import pformat

import torch.distributed as dist

NAMES = (
    *("GROUP_RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK"),
    *("TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE"),
)
LINE = "=" * 54


def say(text: str) -> None:
    """In one piece, because the workers share a terminal."""
    sys.stdout.write(text + "\n\n")
    sys.stdout.flush()


def main() -> None:
    found = pformat({name: os.environ[name] for name in NAMES})
    say(f"{LINE}\nEnvironment variables set by the agent on PID {os.getpid()}:\n{found}\n{LINE}")
    dist.init_process_group("gloo")
    say(
        f"On PID {os.getpid()}, after init process group, "
        f"rank={dist.get_rank()}, world_size = {dist.get_world_size()}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
