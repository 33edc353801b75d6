"""Goes on after its `with` block: afterwards.py OUT. Each part waits for a byte in a named pipe.

OUT/after-MEMBER, if it is there, holds up the script after training; OUT/last-MEMBER holds up the
last checkpoint, because the state is not handed out before.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch

import midflight as mf

out, me = Path(sys.argv[1]), os.environ["MIDFLIGHT_MEMBER"]
torch.set_num_threads(1)


def await_byte(name: str) -> None:
    path = out / f"{name}-{me}"
    if path.exists():
        with path.open("rb", buffering=0) as pipe:
            pipe.read(1)


class Slow:
    ready = True

    def state_dict(self) -> dict[str, Any]:
        if not self.ready:
            await_byte("last")
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


model, slow = torch.nn.Linear(3, 1), Slow()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with mf.join(model=model, optimizer=optimizer, slow=slow) as job:
    job.checkpoints(out / "kept", every=1000)
    for batch in job.batches([torch.ones(3)] * 400, global_batch_size=10, epochs=1):
        job.step(model(batch.data).sum())
    slow.ready = False
await_byte("after")
(out / f"{me}.txt").write_text(str(job.step_number))
