"""A loop of Lightning Fabric, with a scheduler and clipping, that leaves time to strike."""

import argparse
import json
import os
from pathlib import Path

import torch
from lightning.fabric import Fabric
from pace import keep_pace

from midflight.integrations.fabric import ElasticStrategy

SAMPLES, EPOCHS = 300, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--precision", default="32-true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    strategy = ElasticStrategy("cpu")
    fabric = Fabric(accelerator="cpu", strategy=strategy, precision=options.precision)
    fabric.launch()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = fabric.setup(model, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, step_size=20, gamma=0.9)
    source = torch.Generator().manual_seed(1)
    data = [(x, x.sum().reshape(1)) for x in torch.randn(SAMPLES, 4, generator=source)]
    with strategy.join(model, optimizer, scheduler=scheduler) as job:
        for batch in job.batches(data, global_batch_size=16, epochs=EPOCHS):
            keep_pace(options.out, batch.step)
            loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            if not optimizer.step():
                continue
            scheduler.step()
            fabric.print(f"step {job.step_number} of a world of {fabric.world_size}")
            if job.step_number % 50 == 0:
                fabric.save(options.out / "kept.ckpt", {"model": model, "step": job.step_number})
        result = {
            "step": job.step_number,
            "rate": scheduler.get_last_lr()[0],
            "first": fabric.is_global_zero,
            "named": fabric.broadcast(os.environ.get("MIDFLIGHT_MEMBER", "m0")),
            "weights": [p.detach().double().sum().item() for p in model.parameters()],
        }
    member = os.environ.get("MIDFLIGHT_MEMBER", "m0")
    (options.out / f"{member}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
