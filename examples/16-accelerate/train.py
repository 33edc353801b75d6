"""Accelerate's own loop, with an Accelerator and batches for members that come and go."""

import argparse

import torch

from midflight.integrations.accelerate import Accelerator


def rings(count: int) -> torch.utils.data.TensorDataset:
    """Made-up points; the question is whether one lies in the outer ring."""
    source = torch.Generator().manual_seed(7)
    x = torch.randn(count, 2, generator=source)
    return torch.utils.data.TensorDataset(x, (x.norm(dim=1) > 1.2).float().unsqueeze(1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    with accelerator.join(model, optimizer, scheduler=scheduler) as job:
        for batch in job.batches(rings(2_000), global_batch_size=64, epochs=options.epochs):
            batch = batch.to(accelerator.device)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch.x), batch.y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()  # skipped if a member was lost: the same samples come again
            scheduler.step()  # if the optimizer did
            job.log(loss=loss)
        accelerator.print(f"trained for {job.step_number} steps")


if __name__ == "__main__":
    main()
