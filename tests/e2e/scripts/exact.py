"""Trains a small network with dropout and batch norm in deterministic mode; prints a hash."""

import argparse
import hashlib
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

import midflight as mf

SHARDS = 6


def digest(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    state = [*model.state_dict().values()]
    state += [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    total = hashlib.sha256()
    for tensor in state:
        total.update(bytes(tensor.detach().contiguous().flatten().view(torch.uint8).tolist()))
    return total.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of rest in each step")
    options = parser.parse_args()
    out = options.out
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(210, 8), torch.randn(210, 1))
    model = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with mf.join(model=model, optimizer=optimizer, deterministic=SHARDS) as job:
        for batch in job.batches(data, global_batch_size=24, epochs=options.epochs):
            if not (out / "hurry").exists():
                time.sleep(options.pace)
            job.step(nn.functional.mse_loss(model(batch.x), batch.y))
        (out / f"hash-{job.rank}").write_text(digest(model, optimizer))


if __name__ == "__main__":
    main()
