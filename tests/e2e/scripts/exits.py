"""Ends with sys.exit inside its `with` block: exits.py OUT CODE STEP [MEMBER ...]; no name: all."""

import os
import sys
from pathlib import Path

import torch

import midflight as mf

out, code, step, members = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
me = os.environ["MIDFLIGHT_MEMBER"]
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches([torch.ones(3)] * 400, global_batch_size=10, epochs=1):
        if batch.step == step and (me in members or not members):
            sys.exit(code)
        job.step(model(batch.data).sum())
    (out / f"{me}.txt").write_text(str(job.step_number))
