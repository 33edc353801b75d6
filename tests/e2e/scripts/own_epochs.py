"""An epoch loop of the script's own, with an evaluation by all members after each epoch."""

import torch
from counter import BATCH, EPOCHS, SAMPLES, Counter, pace, report

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with mf.join(model=model, optimizer=optimizer) as job:
    job.state.setdefault("history", [])
    for epoch in job.epochs(EPOCHS):
        for batch in job.batches(range(SAMPLES), global_batch_size=BATCH):
            pace()
            job.step(model(batch.data) * batch.global_size)
        with torch.no_grad():
            mine = model.w[job.rank :: job.size].sum()
        try:
            total = job.all_reduce(mine).item()
        except mf.WorldChanged:
            continue  # a member was lost meanwhile: this epoch goes without
        assert total == -SAMPLES * (epoch + 1), f"{total} after epoch {epoch}"
        job.state.history = [*job.state.history, total]
    assert len(job.state.history) >= EPOCHS - 2
    report(job, model)
