"""A script that asks for sizes itself: by a schedule, or by `resize(n)` and `propose_new_size`."""

import sys
import time

import kungfu.python as kfpy
import torch
from kungfu.torch import ElasticHook


def by_schedule() -> None:
    model = torch.nn.Linear(2, 1)
    hook = ElasticHook(10, epochs=1, epoch_size=200, model=model, schedule="1:3,2:4,1:1000")
    while hook.begin_step():
        if hook.step in (0, 3, 7):
            print(f"step {hook.step} np={kfpy.current_size()} {hook.trained_samples}", flush=True)
        with torch.no_grad():
            model.weight += 1
        time.sleep(0.01)
        hook.end_step()


def by_hand() -> None:
    step, need_sync, detached = 0, True, False
    while not detached and (step < 8 or kfpy.current_size() > 1):
        if need_sync:
            step = kfpy.all_reduce_int_max(step)
            print(f"at {step} np={kfpy.current_size()}", flush=True)
        step += 1
        time.sleep(0.02)
        if step == 3:
            need_sync, detached = kfpy.resize(2)
            print(f"resize says {need_sync}, {detached}", flush=True)
            continue
        if step == 6 and kfpy.current_rank() == 0:
            kfpy.propose_new_size(1)
        need_sync, detached = kfpy.resize()
        if step == 6:
            print(f"after the proposal: {need_sync}, {detached}", flush=True)
    print("detached" if detached else "finished", flush=True)


if __name__ == "__main__":
    {"schedule": by_schedule, "hand": by_hand}[sys.argv[1]]()
