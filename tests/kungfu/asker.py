"""A script that asks for sizes itself: by a schedule, by `resize(n)` and by `propose_new_size`."""

import sys
import time

import kungfu.python as kfpy
import torch
from kungfu.torch import ElasticHook

model = torch.nn.Linear(2, 1)
hook = ElasticHook(10, epochs=1, epoch_size=10_000, model=model, schedule="1:3,2:4,1:1000")
last = int(sys.argv[1])
while hook.begin_step():
    if hook.step in (0, 3, 7):
        print(f"step {hook.step} np={kfpy.current_size()} {hook.trained_samples}", flush=True)
    if hook.step == last and kfpy.current_size() == 1:
        break
    with torch.no_grad():
        model.weight += 1
    time.sleep(0.01)
    hook.end_step()
if hook.exit_reason is None:
    print(f"resize says {kfpy.resize(2)}", flush=True)
    if kfpy.current_rank() == 0:
        kfpy.propose_new_size(1)
    changed = False
    while not changed:
        changed, _ = kfpy.resize()
        time.sleep(0.02)
    print(f"proposed np={kfpy.current_size()}", flush=True)
