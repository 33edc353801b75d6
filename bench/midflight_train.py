"""The ten-line script of the README on the benchmark's model.

`python midflight_train.py MB [JOINING]`, see `mf.join`.

A step counts at the size of those who have a share of it, and a newcomer's from its first share on.
With BENCH_DEVICE=cuda in the environment all members share the first GPU, over gloo.
"""

import os
import sys
from typing import Any

import midflight as mf
from bench import model as task
from bench.record import Recorder


def main(megabytes: int, joining: Any = "auto") -> None:
    device = os.environ.get("BENCH_DEVICE", "cpu")
    model, optimizer = task.build(megabytes)
    model.to(device)
    recorder = Recorder.from_env()
    samples = task.Samples(megabytes)
    with mf.join(model=model, optimizer=optimizer, joining=joining) as job:
        for batch in job.batches(samples, global_batch_size=task.GLOBAL_BATCH, epochs=1000):
            x, y = batch.x.to(device), batch.y.to(device)
            loss = task.criterion(model(x), y)
            seat = batch.issued.seat
            if job.step(loss) and batch.weight:
                recorder.done(batch.step, seat.sharers or seat.size)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
