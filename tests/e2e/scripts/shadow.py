"""Trains with newcomers that catch up; each member leaves its state. Streams wait for a file `go`,
if a file `hold` is there, and leave a file that says that they wait.
"""

import argparse
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import midflight as mf
from midflight.runtime.shadow import stream

MEMBER = os.environ.get("MIDFLIGHT_MEMBER", "alone")
# So that NCCL takes two members on one GPU for machines of their own.
os.environ |= {"NCCL_HOSTID": MEMBER, "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
WIDTH = 200  # its square in doubles is a large tensor


def hold_streams(out: Path) -> None:
    move: Callable[..., None] = stream._move

    def held(group: Any, peer: int, verb: str, *rest: Any) -> None:
        if (out / "hold").exists():
            (out / f"held-{verb}").touch()
            while not (out / "go").exists():
                time.sleep(0.01)
        move(group, peer, verb, *rest)

    stream._move = held


def digest(tensors: list[torch.Tensor]) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).tolist()))
    return total.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="gloo")
    options = parser.parse_args()
    out = options.out
    hold_streams(out)
    torch.set_num_threads(1)
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    data = TensorDataset(torch.randn(1200, 8), torch.randn(1200, 1))  # 100 steps an epoch
    model = nn.Sequential(
        nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)
    )
    model.to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.99)
    held = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    with mf.join(**held, backend=options.backend, joining="shadow") as job:
        for batch in job.batches(data, global_batch_size=12, epochs=options.epochs):
            if not (out / "hurry").exists():
                time.sleep(0.02)
            elif batch.epoch >= int((out / "hurry").read_text()):
                break
            batch = batch.to(options.device)
            if job.backward(nn.functional.mse_loss(model(batch.x), batch.y)):
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                if job.apply():
                    scheduler.step()
        weights = [*model.parameters()]
        state = [v for s in optimizer.state.values() for v in s.values()]
        result = {
            "digest": digest([*weights, *state]),
            "weights": torch.cat([w.detach().cpu().flatten() for w in weights])[::97].tolist(),
            "epochs": job.epoch,
            "step": job.step_number,
            "rate": scheduler.get_last_lr(),
        }
        (out / f"state-{MEMBER}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
