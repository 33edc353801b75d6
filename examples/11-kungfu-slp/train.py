"""A single-layer perceptron on made-up digits, written for KungFu's API.

Each worker trains on batches of its own; gradients are averaged, so the learning rate means the
same at any size. `resize()` after each step is where the cluster may change.
"""

import argparse

import kungfu.python as kfpy
import kungfu.torch as kf
import torch
import torch.nn.functional as F

PIXELS, DIGITS = 28 * 28, 10


def digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that look like MNIST to a perceptron: a pattern for each digit, and noise."""
    patterns = torch.rand(DIGITS, PIXELS, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(DIGITS, (count,), generator=generator)
    return patterns[labels] + torch.randn(count, PIXELS, generator=generator), labels


def accuracy(model: torch.nn.Module) -> float:
    images, labels = digits(1000, seed=2)
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--num-epochs", type=int, help="of 6,000 images, instead of --steps")
    parser.add_argument("--data-dir", help="not read: the data are made up")
    parser.add_argument("--batch-size", type=int, default=64, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--schedule", help='sizes to ask for, as in "1:100,2:100,4:100"')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if args.num_epochs:
        args.steps = args.num_epochs * 6000 // args.batch_size
    torch.manual_seed(0)
    model = torch.nn.Linear(PIXELS, DIGITS)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    optimizer = kf.optimizers.SynchronousSGDOptimizer(optimizer, model.named_parameters())
    schedule = kf.step_based_schedule(args.schedule) if args.schedule else None

    step, need_sync = 0, True
    while step < args.steps:
        if need_sync:
            step = kfpy.all_reduce_int_max(step)
            kf.broadcast_parameters(model.state_dict())
            rank, size = kfpy.current_rank(), kfpy.current_cluster_size()
            print(f"step {step}: rank {rank} of {size}", flush=True)

        images, labels = digits(args.batch_size, seed=1000 * step + rank + 10)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss: {loss.item():.4f} np={size}", flush=True)

        need_sync, detached = kfpy.resize(schedule(step) if schedule else None)
        if detached:
            print(f"step {step}: no longer needed", flush=True)
            return
    print(f"finished after {step} steps, accuracy {accuracy(model):.3f}", flush=True)


if __name__ == "__main__":
    main()
