"""Micro batches of two samples: as many of them as the share of a member needs."""

import torch
from counter import BATCH, EPOCHS, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
completed = most = 0
with mf.join(model=model, optimizer=optimizer) as job:
    batches = job.batches(
        range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS, plan={"micro_batch_size": 2}
    )
    for batch in batches:
        most = max(most, len(batch.indices))
        if job.step(model(batch.data) * batch.global_size):
            assert batch.last_micro
            completed += 1
            pace()
    assert 0 < completed <= job.step_number
    assert most == 2
    report(job, model)
