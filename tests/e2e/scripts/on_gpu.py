"""A counting training on one GPU that all members share: OUT gloo|nccl ours|own [MEGABYTES].

With so many megabytes of state, all of it ones, which a newcomer lacks and must end up with.

NCCL takes two ranks of one machine on one GPU for a mistake. Each member says that it is a machine
of its own, so that NCCL goes over sockets, as it would between machines.
"""

import os
import sys

import torch
from counter import BATCH, EPOCHS, MEMBER, SAMPLES, Counter, pace, report
from torch.nn.parallel import DistributedDataParallel

import midflight as mf

BACKEND, OWN_DDP = sys.argv[2], sys.argv[3] == "own"
os.environ |= {"NCCL_HOSTID": MEMBER, "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}


class Ballast:
    def __init__(self, megabytes: int) -> None:
        first = os.environ.get("MIDFLIGHT_MEMBER", "m0") in ("m0", "m1")
        self.at = torch.full((megabytes << 18,), float(first), device="cuda")

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.at = state["at"]


ballast = Ballast(int(sys.argv[4]) if len(sys.argv) > 4 else 0)
model = Counter().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
wrapped: torch.nn.Module = model
world = None
options = {"ddp": False} if OWN_DDP else {}
held = {"model": model, "optimizer": optimizer, "ballast": ballast}
with mf.join(**held, backend=BACKEND, **options) as job:
    for batch in job.batches(range(SAMPLES), global_batch_size=BATCH, epochs=EPOCHS):
        pace()
        try:
            with job.guard():
                if OWN_DDP and job.world != world:
                    group = job.process_group
                    wrapped = (
                        DistributedDataParallel(model, process_group=group) if group else model
                    )
                    world = job.world
                loss = wrapped(batch.data.cuda()) * batch.global_size
        except mf.WorldChanged:
            continue
        job.step(loss)
    assert bool((ballast.at == 1.0).all()), "the state was torn"
    report(job, model)
