"""A script with an epoch loop of its own: it evaluates and keeps a checkpoint after each epoch."""

import argparse
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

import midflight as mf


def made_up(samples: int) -> TensorDataset:
    x = torch.randn(samples, 8)
    return TensorDataset(x, (x.sum(1) > 0).long())


def evaluate(job: mf.Job, model: torch.nn.Module, test: TensorDataset) -> float | None:
    """Each member looks at its part of the test set; None if a member was lost meanwhile."""
    mine = range(job.rank, len(test), job.size)
    x, y = test[list(mine)]
    with torch.no_grad():
        right = (model(x).argmax(1) == y).sum().float()
    try:
        return job.all_reduce(right).item() / len(test)
    except mf.WorldChanged:
        return None  # some may have the figure, others not: all of them go on to the next step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--checkpoint", type=Path, default=None)
    options = parser.parse_args()
    torch.manual_seed(0)
    train, test = made_up(4_000), made_up(1_000)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
    everything = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    with mf.join(**everything, resume=options.checkpoint) as job:
        job.state.setdefault("best", 0.0)
        for epoch in job.epochs(options.epochs):
            for batch in job.batches(train, global_batch_size=200):
                loss = torch.nn.functional.cross_entropy(model(batch.x), batch.y)
                if job.step(loss):  # False: the step did not happen, and its samples come again
                    scheduler.step()
            if job.overtaken:
                continue  # the others are past this, and what they did is in the state they gave
            accuracy = evaluate(job, model, test)
            if accuracy is not None:
                job.state.best = max(job.state.best, accuracy)
                if job.rank == 0:
                    shown = f"accuracy {accuracy:.3f}, best {job.state.best:.3f}"
                    print(f"epoch {epoch}, step {job.step_number}: {shown}")
            if options.checkpoint:
                job.checkpoint(options.checkpoint)


if __name__ == "__main__":
    main()
