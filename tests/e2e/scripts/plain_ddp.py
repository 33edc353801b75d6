"""A script for torchrun, which knows nothing of Midflight."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

hurry = Path(sys.argv[1]) / "hurry"
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ended = torch.zeros(1)
step = 0
while not ended.item():
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step == 3:
        env = os.environ
        local = f"{env['LOCAL_RANK']}/{env['LOCAL_WORLD_SIZE']}"
        print(f"rank {rank} of {size} ({local}), restart {env['TORCHELASTIC_RESTART_COUNT']}")
    time.sleep(0.02)
    ended.fill_(hurry.exists())
    dist.all_reduce(ended, dist.ReduceOp.MAX)
print(f"rank {rank} is done: {model.module.weight.sum().item():.6f}")
dist.destroy_process_group()
