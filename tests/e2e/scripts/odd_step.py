"""A batch that raises on the members that are named: OUT NUMBER MEMBER...

A newcomer's first batch is its rehearsal, the second its first step in the new world.
"""

import os
import sys
import time
from pathlib import Path

import torch

import midflight as mf

out, number, odd = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with mf.join(model=model, optimizer=optimizer) as job:
    batches = job.batches([torch.ones(3)] * 100, global_batch_size=10, epochs=100)
    for count, batch in enumerate(batches, start=1):
        if not (out / "hurry").exists():
            time.sleep(0.02)
        if os.environ["MIDFLIGHT_MEMBER"] in odd and count == number:
            raise LookupError("no such column: label")
        job.step(model(batch.data).sum())
