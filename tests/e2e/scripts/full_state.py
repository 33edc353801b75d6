"""Everything that a newcomer must receive, hashed by every member at the end, part by part."""

import hashlib
import io
import json
import random
from typing import Any

import torch
from counter import MEMBER, OUT, pace

import midflight as mf

torch.manual_seed(5)
random.seed(5)
source = torch.Generator().manual_seed(1)
x = torch.randn(240, 6, generator=source)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
model = torch.nn.Sequential(
    torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
)
parts: dict[str, Any] = {"model": model}
parts["optimizer"] = optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
parts["scheduler"] = scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.9)
parts["scaler"] = scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=9)


def digest(value: Any) -> str:
    memory = io.BytesIO()
    torch.save(value, memory)
    plain = torch.load(io.BytesIO(memory.getvalue()), weights_only=True)
    return hashlib.sha256(repr(_listed(plain)).encode()).hexdigest()[:12]


def _listed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return [(key, _listed(value[key])) for key in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    return value


with mf.join(**parts, verify_every=5) as job:
    job.state.setdefault("smooth", 0.0)
    for batch in job.batches(data, global_batch_size=12, epochs=30):  # even shares: for 2, 3 and 4
        loss = torch.nn.functional.mse_loss(model(batch.x), batch.y)
        random.random()
        if job.step(loss):
            scheduler.step()
            job.state.smooth = 0.9 * job.state.smooth + job.step_number
        pace()
    result = {name: digest(part.state_dict()) for name, part in parts.items()}
    result |= {
        "state": digest(dict(job.state)),
        "torch": digest(torch.get_rng_state()),
        "random": digest(random.random()),
        "lr": scheduler.get_last_lr()[0],
        "scale": scaler.get_scale(),
        "step": job.step_number,
        "batches": int(model[1].num_batches_tracked),
    }
    (OUT / f"{MEMBER}.json").write_text(json.dumps(result))
