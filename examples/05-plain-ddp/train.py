"""A script that knows torch.distributed and nothing of Midflight.

It gets the environment that torchrun sets and is started again at each change, so it keeps a
checkpoint of its own, as it would under torchrun.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The first epoch that is still to be done."""
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["epochs"])


def save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epochs}
    beside = path.with_suffix(".new")
    torch.save(state, beside)
    beside.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(2_000, 16)
    dataset = TensorDataset(x, x.sum(1, keepdim=True))
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    first = restore(options.checkpoint, model, optimizer)
    parallel = DistributedDataParallel(model)
    sampler = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=200 // dist.get_world_size(), sampler=sampler)
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(parallel(inputs), targets)
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            save(options.checkpoint, model, optimizer, epoch + 1)
            print(f"epoch {epoch}: loss {loss.item():.6f}, {dist.get_world_size()} processes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
