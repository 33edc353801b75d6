"""Prints the variables that torchrun sets, one line for each worker."""

import json
import os
import sys

PREFIXES = ("TORCH", "ROLE_", "GROUP_", "LOCAL_", "MASTER_", "WORLD_", "RANK", "OMP_", "CUDA_")

found = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
sys.stdout.write(json.dumps({"argv": sys.argv[1:], **found}) + "\n")
sys.stdout.flush()
