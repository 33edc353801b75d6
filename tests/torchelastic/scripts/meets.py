"""A worker that meets the others in a process group, says where, and then does as hold.py does."""

import os
import runpy
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"met {int(total)} at {os.environ['MASTER_PORT']}", flush=True)
runpy.run_path(str(Path(__file__).with_name("hold.py")))
