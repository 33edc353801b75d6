"""Lightning Fabric, with a strategy whose rank and size are those of now."""

import argparse

import torch
from lightning.fabric import Fabric

from midflight.integrations.fabric import ElasticStrategy


def curve(count: int) -> torch.utils.data.TensorDataset:
    """Made-up points on a sine."""
    x = torch.linspace(-3, 3, count).unsqueeze(1)
    return torch.utils.data.TensorDataset(x, torch.sin(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    strategy = ElasticStrategy()
    fabric = Fabric(strategy=strategy)
    fabric.launch()
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = fabric.setup(model, optimizer)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer.optimizer, gamma=0.999)
    with strategy.join(model, optimizer, scheduler=scheduler) as job:
        for batch in job.batches(curve(2_000), global_batch_size=64, epochs=options.epochs):
            batch = batch.to(fabric.device)
            loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            if optimizer.step():  # False: a member was lost, and the same samples come again
                scheduler.step()
                job.log(loss=loss)
        fabric.print(f"trained for {job.step_number} steps")


if __name__ == "__main__":
    main()
