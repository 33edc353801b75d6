"""An elastic script of the usual kind, with everything in it that once broke such scripts."""

import os
import sys
import time

import horovod.torch as hvd
import torch
from torch import nn

BATCHES, COMMIT_EVERY = int(sys.argv[1]), int(sys.argv[2])
first_two = hvd.ProcessSet([0, 1])
hvd.init(process_sets=[first_two])
torch.manual_seed(1000 + os.getpid())
model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
# Collectives before the training function: a newcomer's must neither hang nor matter.
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.allreduce(torch.ones(1), name="early")


def fingerprint() -> float:
    momentum = [s["momentum_buffer"] for s in optimizer.state.values()]
    return sum(t.double().abs().sum().item() for t in [*model.state_dict().values(), *momentum])


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> str:
    while state.batch < BATCHES:
        optimizer.zero_grad()
        model(torch.randn(4, 10)).square().mean().backward()
        optimizer.step()
        state.batch += 1
        state.sizes.append(hvd.size())  # mutable: it has to follow the weights
        if state.batch % COMMIT_EVERY == 0:
            state.commit()
        else:
            state.check_host_updates()
        if state.batch % 20 == 0:
            prints = hvd.allgather(torch.tensor([fingerprint()], dtype=torch.float64))
            assert torch.equal(prints, prints[:1].expand_as(prints)), prints
            if first_two.included():  # made again in every world
                both = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=first_two)
                assert both.item() == min(2, hvd.size())
            if hvd.rank() == 0:
                print(f"batch {state.batch} size {hvd.size()}", flush=True)
        time.sleep(0.01)
    return "through"


state = hvd.elastic.TorchState(model, optimizer, batch=0, sizes=[])
pid = os.getpid()


def tell() -> None:
    print(f"reset pid {pid} batch {state.batch} size {hvd.size()} rank {hvd.rank()}", flush=True)


state.register_reset_callbacks([tell])
result = train(state)
assert len(state.sizes) == state.batch == BATCHES, (len(state.sizes), state.batch)
print(f"{result} pid {pid} sizes {sorted(set(state.sizes))}", flush=True)
