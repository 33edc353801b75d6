"""A KungFu script for the tests: its last line can be computed from the number of its steps alone.

With momentum lost, a step left out or done twice, it would be another one.
"""

import argparse
import time
from pathlib import Path

import kungfu.python as kfpy
import kungfu.torch as kf
import torch
from small_model import build, one_step, summary


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path, help="a file that ends the training")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.02)
    options = parser.parse_args()
    model, optimizer = build()
    if kfpy.current_rank():
        torch.nn.init.zeros_(model.weight)  # which a broadcast or the optimizer has to mend
    optimizer = kf.optimizers.SynchronousSGDOptimizer(optimizer, model.named_parameters())
    step, need_sync = 0, True
    while step < options.steps:
        if need_sync:
            step = kfpy.all_reduce_int_max(step)
            kf.broadcast_parameters(model.state_dict())
            print(f"at {step} rank={kfpy.current_rank()} np={kfpy.current_size()}", flush=True)
        if options.until and kfpy.all_reduce_int_max(int(options.until.exists())):
            break
        one_step(model, optimizer, step)
        step += 1
        time.sleep(options.pause)
        need_sync, detached = kfpy.resize()
        if detached:
            print(f"left at {step}", flush=True)
            return
    print(f"done {step} with {summary(model):.4f} np={kfpy.current_size()}", flush=True)


if __name__ == "__main__":
    main()
