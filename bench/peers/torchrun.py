"""torchrun as tuned as it can be: one agent per worker, a checkpoint to come back to.

It stops and starts every worker at each change, so a survivor is the agent, and what it loses are
the steps since the checkpoint. `TORCH_DISABLE_SHARE_RDZV_TCP_STORE` is needed for a newcomer to get
in at all with torch 2.13. The first agent holds the rendezvous store and is never touched.
"""

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import ClassVar

from bench.processes import Run, free_port
from bench.record import FOLDER
from bench.systems import Shape

CHECKPOINT_EVERY = 50
RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60"


@dataclass
class TorchrunFleet:
    module: ClassVar[str] = "torch.distributed.run"
    run: Run
    shape: Shape
    port: int
    agents: list[Popen[bytes]] = field(default_factory=list)

    @property
    def untouchable(self) -> frozenset[int]:
        return frozenset({self.agents[0].pid})

    def add(self) -> None:
        least = self.shape.workers if self.shape.gated else max(1, self.shape.workers - 1)
        script = ["-m", "bench.peers.torchrun", str(self.shape.megabytes)]
        agent = self.run.start(
            [
                *("-m", self.module),
                f"--nnodes={least}:{self.shape.workers if self.shape.gated else 16}",
                "--nproc-per-node=1",
                "--max-restarts=100",
                "--monitor-interval=0.05",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{self.port}",
                "--rdzv-id=bench",
                f"--rdzv-conf={RENDEZVOUS}",
                "--local-addr=127.0.0.1",
                *script,
            ],
            {
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                "BENCH_CHECKPOINT_EVERY": "0" if self.shape.gated else str(CHECKPOINT_EVERY),
            },
        )
        self.agents.append(agent)

    def remove(self) -> None:
        self.agents.pop().send_signal(signal.SIGTERM)


class Torchrun:
    name = "torchrun"

    def start(self, run: Run, shape: Shape) -> TorchrunFleet:
        fleet = TorchrunFleet(run, shape, free_port())
        for _ in range(shape.workers):
            fleet.add()
        return fleet


def main(megabytes: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from bench import model as task
    from bench.record import Recorder

    every = int(os.environ["BENCH_CHECKPOINT_EVERY"])  # 0: never
    checkpoint = Path(os.environ[FOLDER], "checkpoint.pt")
    model, optimizer = task.build(megabytes)
    dist.init_process_group("gloo")
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    part = task.Share(dist.get_rank(), dist.get_world_size())
    wrapped = DistributedDataParallel(model)
    recorder = Recorder.from_env(who=os.getppid())
    for x, y in task.batches(megabytes, part):
        optimizer.zero_grad()
        task.criterion(wrapped(x), y).backward()
        optimizer.step()
        step += 1
        recorder.done(step, part.size)
        if every and step % every == 0 and part.rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)


if __name__ == "__main__":
    main(int(sys.argv[1]))
