"""A dataset of two samples."""

import torch

import midflight as mf

torch.set_num_threads(1)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches([torch.ones(3)] * 2, global_batch_size=10, epochs=1):
        job.step(model(batch.data).sum())
