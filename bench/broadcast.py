"""How long gloo needs to broadcast a model's whole state once, as one flat tensor.

The yardstick for a resize at 100 MB. Every process has its buffer touched beforehand; the time is
that of the slowest one, and the median of several.
"""

import json
import sys
import time
from statistics import median

from bench.processes import Run, free_port

TIMES = 9
RESULT = "broadcast.json"


def broadcast_seconds(megabytes: int, size: int) -> float:
    with Run("broadcast") as run:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        result = run.folder / RESULT
        for rank in range(size):
            env = {**where, "RANK": str(rank), "WORLD_SIZE": str(size)}
            run.start(["-m", "bench.broadcast", str(megabytes), str(result)], env)
        run.wait("the broadcasts", lambda _: result.exists(), 60)
        seconds: float = json.loads(result.read_text())
        return seconds


def main(megabytes: int, result: str) -> None:
    from pathlib import Path

    import torch
    import torch.distributed as dist

    from bench.model import state_bytes

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    state = torch.zeros(state_bytes(megabytes) // 4)
    seconds = []
    for _ in range(TIMES + 2):
        dist.barrier()
        start = time.monotonic()
        dist.broadcast(state, src=0)
        slowest = torch.tensor(time.monotonic() - start)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        seconds.append(slowest.item())
    if dist.get_rank() == 0:
        fresh = Path(f"{result}.new")
        fresh.write_text(json.dumps(median(seconds[2:])))
        fresh.rename(result)
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
