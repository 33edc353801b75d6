"""What the scripts here share: a model that counts how often each sample was used.

As in ../counting.py: after k epochs every entry of -w is k, or a sample was lost or repeated.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

import midflight as mf

SAMPLES, BATCH, EPOCHS = 397, 10, 15
OUT = Path(sys.argv[1])
MEMBER = os.environ.get("MIDFLIGHT_MEMBER", "m0")
torch.set_num_threads(1)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.calls += 1
        return self.w[index].mean()


def pace() -> None:
    """Slow enough to be disturbed, until the test is in a hurry."""
    if not (OUT / "hurry").exists():
        time.sleep(0.05)


def report(job: mf.Job, model: Counter) -> None:
    counts = (-model.w.detach()).round().long()
    result = {
        "member": MEMBER,
        "step": job.step_number,
        "least": int(counts.min()),
        "most": int(counts.max()),
        "weights": model.w.detach().sum().item(),
    }
    (OUT / f"{MEMBER}.json").write_text(json.dumps(result))
