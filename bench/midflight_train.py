"""The ten-line script of the README on the benchmark's model: `python midflight_train.py MB`."""

import sys

import midflight as mf
from bench import model as task
from bench.record import Recorder


def main(megabytes: int) -> None:
    model, optimizer = task.build(megabytes)
    recorder = Recorder.from_env()
    samples = task.Samples(megabytes)
    with mf.join(model=model, optimizer=optimizer) as job:
        for batch in job.batches(samples, global_batch_size=task.GLOBAL_BATCH, epochs=1000):
            loss = task.criterion(model(batch.x), batch.y)
            if job.step(loss):
                recorder.done(batch.step, job.size)


if __name__ == "__main__":
    main(int(sys.argv[1]))
