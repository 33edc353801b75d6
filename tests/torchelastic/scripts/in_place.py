"""A script that calls Midflight: says each world it is in, and ends at a `stop` file."""

import os
import sys
import time
from pathlib import Path

import torch

import midflight as mf
from midflight.errors import WorldChanged

folder = Path(sys.argv[1])
x = torch.randn(4_000, 4)
dataset = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
before: tuple[int, int] | None = None
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(dataset, global_batch_size=12, epochs=1000):
        try:
            stop = job.all_reduce(torch.tensor([float((folder / "stop").exists())]))
        except WorldChanged:
            continue
        loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
        if job.step(loss) and (job.rank, job.size) != before:
            before = (job.rank, job.size)
            sys.stdout.write(
                f"in {job.rank}/{job.size} step {batch.step} pid {os.getpid()}\n"
            )  # in one piece
        if stop.item():
            break
        time.sleep(0.02)
