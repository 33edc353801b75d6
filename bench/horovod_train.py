"""An Elastic Horovod script on the benchmark's model: `python horovod_train.py MB`.

It looks for changes after every step and commits every 50, as often as torchrun's script writes a
checkpoint.
"""

import sys

import horovod.torch as hvd

from bench import model as task
from bench.record import Recorder

COMMIT_EVERY = 50


def main(megabytes: int) -> None:
    hvd.init()
    model, optimizer = task.build(megabytes)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    recorder = Recorder.from_env()
    part = task.Share(0, 1)

    @hvd.elastic.run  # type: ignore[untyped-decorator]  # horovod has no types
    def train(state: hvd.elastic.TorchState) -> None:
        part.rank, part.size = hvd.rank(), hvd.size()
        for x, y in task.batches(megabytes, part, state.step):
            optimizer.zero_grad()
            task.criterion(model(x), y).backward()
            optimizer.step()
            state.step += 1
            recorder.done(state.step, hvd.size())
            if state.step % COMMIT_EVERY == 0:
                state.commit()
            else:
                state.check_host_updates()

    train(hvd.elastic.TorchState(model, optimizer, step=0))


if __name__ == "__main__":
    main(int(sys.argv[1]))
