"""A training whose members note how each of their steps went, and eat memory when told to.

Its weights count how often each sample was used, as those of tests/e2e/counting.py do. A step that
was begun and not completed, and so had to be computed again, is noted as such. A member whose host
finds a file `eat-HOST` takes it away and then all the memory that it is given.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

import torch

import midflight as mf

BATCH = 10
PACE = 0.8  # seconds for each step, until a file `hurry` says which epoch is the end
_MOUTHFUL = 16 << 20  # bytes


class Counter(torch.nn.Module):
    def __init__(self, samples: int) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.w[index].mean()


def end_of(hurry: Path) -> int | None:
    """The epoch before which to stop; None: there is no hurry."""
    try:
        return int(hurry.read_text())
    except FileNotFoundError:
        return None


def main(out: Path, samples: int, epochs: int) -> None:
    torch.set_num_threads(1)
    member = os.environ["MIDFLIGHT_MEMBER"]
    food = out / f"eat-{socket.gethostname()}"
    model = Counter(samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with (
        mf.join(model=model, optimizer=optimizer) as job,
        (out / f"{member}.steps").open("w", buffering=1) as notes,
    ):
        for batch in job.batches(range(samples), global_batch_size=BATCH, epochs=epochs):
            if food.exists():
                food.unlink()
                eat()
            if (end := end_of(out / "hurry")) is None:
                time.sleep(PACE)
            elif batch.epoch >= end:
                break
            done = job.step(model(batch.data) * batch.global_size)
            if batch.step >= 0:  # before its first one, a newcomer rehearses
                notes.write(f"{batch.step} {'done' if done else 'again'}\n")
        counts = (-model.w.detach()).round().long()
        result = {"member": member, "least": int(counts.min()), "most": int(counts.max())}
        (out / f"{member}.json").write_text(json.dumps(result))


def eat() -> None:
    """Until somebody puts an end to it."""
    eaten = []
    while True:
        eaten.append(b"\1" * _MOUTHFUL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
