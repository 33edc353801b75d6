"""A loop without `job.batches` and `job.step`: the shares and the sums are the script's own."""

import torch
from counter import BATCH, EPOCHS, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with mf.join(model=model, optimizer=optimizer, ddp=False) as job:
    job.state.setdefault("used", 0)  # a newcomer has received it
    job.check()
    while job.state.used < SAMPLES * EPOCHS:
        pace()
        stop = min(job.state.used + BATCH, SAMPLES * EPOCHS)
        mine = torch.arange(job.state.used, stop)[job.rank :: job.size] % SAMPLES
        optimizer.zero_grad()
        loss = model(mine) * len(mine) if len(mine) else 0.0 * model.w.sum()
        loss.backward()
        try:
            job.all_reduce(model.w.grad)
        except mf.WorldChanged:
            job.check()
            continue
        optimizer.step()
        job.state.used = stop
        job.check()
    report(job, model)
