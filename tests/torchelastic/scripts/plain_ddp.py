"""A script that knows only torch.distributed: trains, keeps a checkpoint, ends at a `stop` file.

With `raise` as its second argument, rank 1 raises once there is a checkpoint.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


def train(folder: Path, raises: bool) -> None:
    checkpoint = folder / "checkpoint.pt"
    model = torch.nn.Linear(4, 1)
    done = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        done = saved["done"]
    rank, size, attempt = (
        dist.get_rank(),
        dist.get_world_size(),
        os.environ["TORCHELASTIC_RESTART_COUNT"],
    )
    sys.stdout.write(
        f"up {rank}/{size} attempt {attempt} from {done} pid {os.getpid()}\n"
    )  # in one piece
    parallel = DistributedDataParallel(model)
    stop = torch.zeros(1)
    while not stop.item():
        parallel(torch.ones(2, 4)).sum().backward()
        stop.fill_(float((folder / "stop").exists()))
        dist.all_reduce(stop)
        done += 1
        if rank == 0:
            torch.save({"model": model.state_dict(), "done": done}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
        if raises and rank == 1 and done == 3:
            raise ValueError("the third step is too much")
        time.sleep(0.02)


@record
def main() -> None:
    dist.init_process_group("gloo")
    train(Path(sys.argv[1]), "raise" in sys.argv)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
