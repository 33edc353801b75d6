"""Keeps a checkpoint every ten steps, and begins with the last one if there is one."""

import torch
from counter import BATCH, EPOCHS, OUT, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
kept = OUT / "kept" / "checkpoint"
with mf.join(model=model, optimizer=optimizer, resume=kept) as job:
    print(f"begins at step {job.step_number}")
    for batch in job.batches(range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS):
        pace()
        if job.step(model(batch.data) * batch.global_size) and job.step_number % 10 == 0:
            job.checkpoint(kept)
    report(job, model)
