"""A loop of Accelerate, with a scheduler, clipping and micro batches; it leaves time to strike."""

import argparse
import json
import os
from pathlib import Path

import torch
from pace import keep_pace

from midflight.integrations.accelerate import Accelerator

SAMPLES, EPOCHS = 300, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.9)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    source = torch.Generator().manual_seed(1)
    data = [(x, x.sum().reshape(1)) for x in torch.randn(SAMPLES, 4, generator=source)]
    plan = {"micro_batch_size": 5}
    with accelerator.join(model, optimizer, scheduler=scheduler) as job:
        for batch in job.batches(data, global_batch_size=16, epochs=EPOCHS, plan=plan):
            keep_pace(options.out, batch.step)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
            accelerator.backward(loss)
            if batch.last_micro:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            if not optimizer.step_was_skipped:
                accelerator.print(f"step {job.step_number} of a world of {job.size}")
        accelerator.wait_for_everyone()
        accelerator.save(model.state_dict(), options.out / "kept.ckpt")
        result = {
            "step": job.step_number,
            "rate": scheduler.get_last_lr()[0],
            "first": accelerator.is_main_process,
            "weights": [p.detach().double().sum().item() for p in model.parameters()],
        }
    member = os.environ.get("MIDFLIGHT_MEMBER", "m0")
    (options.out / f"{member}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
