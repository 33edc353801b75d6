"""A DataLoader of the script's own, with workers and its own collate function."""

import torch
from counter import BATCH, EPOCHS, SAMPLES, Counter, pace, report
from torch.utils.data import DataLoader

import midflight as mf


def collate(indices: list[int]) -> dict[str, torch.Tensor]:
    return {"index": torch.tensor(indices)}


model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with mf.join(model=model, optimizer=optimizer) as job:
    dataset = range(SAMPLES)
    sampler = job.sampler(dataset, BATCH, epochs=EPOCHS)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=1, collate_fn=collate)
    for batch in job.follow(loader, sampler):
        pace()
        job.step(model(batch["index"]) * batch.global_size)
    report(job, model)
