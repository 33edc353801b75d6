"""An elastic sampler: which samples were processed, written down by whoever did."""

import os
import sys
import time

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset

OUT, SAMPLES, EPOCHS, BATCH = sys.argv[1], 240, 2, 4
hvd.init()
dataset = TensorDataset(torch.arange(SAMPLES))
model = torch.nn.Linear(1, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.001))
sampler = hvd.elastic.ElasticSampler(dataset, shuffle=True, seed=5)
notes = open(os.path.join(OUT, f"samples.{os.getpid()}"), "w", buffering=1)  # noqa: SIM115


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    while state.epoch < EPOCHS:
        for index, (samples,) in enumerate(DataLoader(dataset, BATCH, sampler=sampler)):
            optimizer.zero_grad()
            model(samples[:, None].float()).mean().backward()
            optimizer.step()
            sampler.record_batch(index, BATCH)
            for sample in samples.tolist():
                print(state.epoch, sample, file=notes)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} left {len(sampler.remaining_indices)}", flush=True)
            state.check_host_updates()
            time.sleep(0.05)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0))
