"""A loop with backward passes and optimizer steps of its own: OUT MEMBER:STEP...

Each member that is named dies in the backward pass of that step, when its first bucket of
gradients is on its way and the others wait for its last.
"""

import os
import signal
import sys

import torch
from counter import BATCH, EPOCHS, MEMBER, SAMPLES, Counter, pace, report

import midflight as mf

deaths = dict(word.split(":") for word in sys.argv[2:])


class Deep(Counter):
    """With two buckets of gradients; the counting one comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.other = torch.nn.Parameter(torch.zeros(5_000))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        self.early = super().forward(index)
        return self.early + (self.other * 0.0).sum()


def die(gradient: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
with mf.join(model=model, optimizer=optimizer, ddp={"bucket_cap_mb": 0.01}) as job:
    job.state.setdefault("used", 0)
    job.check()
    while job.state.used < SAMPLES * EPOCHS:
        pace()
        stop = min(job.state.used + BATCH, SAMPLES * EPOCHS)
        mine = torch.arange(job.state.used, stop)[job.rank :: job.size] % SAMPLES
        try:
            loss = model(mine) * len(mine) * job.size
            if deaths.get(MEMBER) == str(job.step_number):
                model.early.register_hook(die)
            loss.backward()
            optimizer.step()
        except mf.WorldChanged:
            job.check()
            continue
        optimizer.zero_grad()
        job.state.used = stop
        job.check()
    report(job, model)
