"""A step that raises on the members that are named: OUT MEMBER..."""

import os
import sys
import time
from pathlib import Path

import torch

import midflight as mf

out, odd = Path(sys.argv[1]), sys.argv[2:]
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches([torch.ones(3)] * 100, global_batch_size=10, epochs=100):
        if not (out / "hurry").exists():
            time.sleep(0.02)
        if os.environ["MIDFLIGHT_MEMBER"] in odd:
            raise LookupError("no such column: label")
        job.step(model(batch.data).sum())
