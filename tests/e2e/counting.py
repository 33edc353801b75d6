"""A training script whose weights count how often each sample was used.

The loss is the mean of `w[i]` over the batch's indices i, times the size of the global batch, and
the learning rate is 1, so that each use of sample i moves w[i] by -1. After k epochs every entry
of -w is k, whatever the world did meanwhile; anything else is a lost or repeated sample in the
state that survived.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch

import midflight as mf

BATCH = 10


class Counter(torch.nn.Module):
    def __init__(self, samples: int, extra: int) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))
        self.ballast = torch.nn.Linear(extra, extra)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.seen += 1
        return self.w[index].mean() + 0.0 * self.ballast(torch.ones(1, 64)).sum()


class Indices(torch.utils.data.Dataset):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> int:
        return index


def end_of(hurry: Path) -> float | None:
    """None: there is no hurry. Else the epoch before which to stop, if the file says one."""
    try:
        return int(hurry.read_text() or "0") or math.inf
    except FileNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=997)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--slow-start", type=float, default=0.0, help="for joiners only")
    parser.add_argument("--raise-at", type=int, default=None)
    parser.add_argument("--raise-on", default="one", choices=["one", "all"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    member = os.environ.get("MIDFLIGHT_MEMBER", "m0")
    if options.slow_start and (options.out / "training").exists():
        time.sleep(options.slow_start)
    model = Counter(options.samples, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    hurry = options.out / "hurry"
    with mf.join(model=model, optimizer=optimizer) as job:
        batches = job.batches(
            Indices(options.samples),
            global_batch_size=BATCH,
            epochs=options.epochs,
            num_workers=options.workers,
        )
        for batch in batches:
            (options.out / "training").touch()
            if (end := end_of(hurry)) is None:
                time.sleep(options.pace)
            elif batch.epoch >= end:
                break
            if batch.step == options.raise_at and (options.raise_on == "all" or member == "m1"):
                raise ValueError(f"a mistake in step {batch.step}")
            job.step(model(batch.data) * batch.global_size)
        counts = (-model.w.detach()).round().long()
        result = {
            "member": member,
            "rank": job.rank,
            "size": job.size,
            "step": job.step_number,
            "least": int(counts.min()),
            "most": int(counts.max()),
            "weights": model.w.detach().sum().item(),
        }
        (options.out / f"{member}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
