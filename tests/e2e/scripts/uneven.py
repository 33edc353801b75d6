"""A training state that goes wrong after a few steps, in the way that is named: OUT WHAT

object: `job.state` holds what cannot be handed to a newcomer. rate: m1 lowers its learning rate, as
after an evaluation that failed elsewhere, and m2 dies when all have completed the same step.
"""

import os
import signal
import sys
import time

import torch
from counter import BATCH, MEMBER, OUT, SAMPLES, pace

import midflight as mf

what = sys.argv[2]


def die_between_steps() -> None:
    """m2 alone, when nobody is in a collective: the others are equally far then."""
    (OUT / f"{MEMBER}.here").touch()
    while MEMBER == "m2":
        if all((OUT / f"{other}.here").exists() for other in ("m0", "m1")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)


model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = [torch.ones(1)] * SAMPLES
with mf.join(model=model, optimizer=optimizer) as job:
    for batch in job.batches(data, global_batch_size=BATCH, epochs=100):
        if (OUT / "hurry").exists() and batch.epoch >= 3:
            break
        if batch.step == 5 and what == "object":
            job.state.writer = object()
        if batch.step == 5 and what == "rate" and MEMBER == "m1":
            optimizer.param_groups[0]["lr"] = 0.05
        job.step(model(batch.data).sum())
        if batch.step == 10 and what == "rate":
            die_between_steps()
        pace()
    print(f"{MEMBER} ends with the rate {optimizer.param_groups[0]['lr']}", flush=True)
