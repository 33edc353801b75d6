"""What the demo trains. Each member writes down when it completed which step, to be measured by.

The pace stands for a bigger model. `--out` is where the step logs go; the demo writes a file named
`epochs` there when it has seen enough, a whole epoch before the one it names.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import midflight as mf

PACE = 0.015  # seconds


def epochs_wanted(folder: Path) -> int:
    try:
        return int((folder / "epochs").read_text())
    except FileNotFoundError:
        return sys.maxsize


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    torch.manual_seed(0)
    x = torch.randn(3_000, 256)
    dataset = TensorDataset(x, x.roll(1, dims=1))
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    optimizer = torch.optim.Adam(model.parameters())
    log = (out / f"{os.environ['MIDFLIGHT_MEMBER']}.steps").open("w", buffering=1)
    with mf.join(model=model, optimizer=optimizer) as job:
        for batch in job.batches(dataset, global_batch_size=32, epochs=sys.maxsize):
            if batch.epoch >= epochs_wanted(out):
                break
            loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
            time.sleep(PACE)
            if job.step(loss):
                log.write(f"{time.monotonic()} {job.step_number} {job.epoch}\n")
            job.log(loss=loss)


if __name__ == "__main__":
    main()
