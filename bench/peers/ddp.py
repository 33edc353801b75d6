"""Plain `DistributedDataParallel`: what a step costs when nobody may come or go."""

import sys
from dataclasses import dataclass

from bench.processes import Run, free_port
from bench.systems import Shape


@dataclass
class DdpFleet:
    run: Run
    untouchable: frozenset[int] = frozenset()

    def add(self) -> None:
        raise NotImplementedError("plain DDP cannot grow")

    def remove(self) -> None:
        raise NotImplementedError("plain DDP cannot shrink")


class Ddp:
    name = "ddp"

    def start(self, run: Run, shape: Shape) -> DdpFleet:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(shape.workers):
            env = {**where, "RANK": str(rank), "WORLD_SIZE": str(shape.workers)}
            run.start(["-m", "bench.peers.ddp", str(shape.megabytes)], env)
        return DdpFleet(run)


def main(megabytes: int) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from bench import model as task
    from bench.record import Recorder

    model, optimizer = task.build(megabytes)
    dist.init_process_group("gloo")
    part = task.Share(dist.get_rank(), dist.get_world_size())
    wrapped = DistributedDataParallel(model)
    recorder = Recorder.from_env()
    for step, (x, y) in enumerate(task.batches(megabytes, part), start=1):
        optimizer.zero_grad()
        task.criterion(wrapped(x), y).backward()
        optimizer.step()
        recorder.done(step, part.size)


if __name__ == "__main__":
    main(int(sys.argv[1]))
