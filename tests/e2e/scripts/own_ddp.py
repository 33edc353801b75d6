"""DistributedDataParallel of the script's own, on the process group of the present world."""

import torch
from counter import BATCH, EPOCHS, SAMPLES, Counter, pace, report
from torch.nn.parallel import DistributedDataParallel as wrap

import midflight as mf

model = Counter()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
wrapped, world = model, None
with mf.join(model=model, optimizer=optimizer, ddp=False) as job:
    for batch in job.batches(range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS):
        pace()
        try:
            with job.guard():  # both the wrapper's making and its forward pass broadcast buffers
                if job.world != world:
                    alone = job.process_group is None
                    wrapped = model if alone else wrap(model, process_group=job.process_group)
                    world = job.world
                loss = wrapped(batch.data) * batch.global_size
        except mf.WorldChanged:
            continue
        job.step(loss)
    report(job, model)
