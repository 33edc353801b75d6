"""Keeps a checkpoint every ten steps, and begins with the last one if there is one."""

import torch
from counter import BATCH, EPOCHS, OUT, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.0)
with mf.join(model=model, optimizer=optimizer, resume=OUT / "kept") as job:
    job.checkpoints(OUT / "kept", every=10)
    print(f"begins at step {job.step_number} as one of {job.size}")
    for batch in job.batches(range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS):
        pace()
        job.step(model(batch.data) * batch.global_size)
    report(job, model)
