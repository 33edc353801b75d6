"""Says at each step who it is, on both streams."""

import sys

import torch
from counter import BATCH, EPOCHS, MEMBER, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS):
        pace()
        job.step(model(batch.data) * batch.global_size)
        print(f"{MEMBER} is rank {job.rank}")
        print(f"{MEMBER} complains", file=sys.stderr)
    report(job, model)
