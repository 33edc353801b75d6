"""A worker that knows no torch: says who it is, and ends with 0 when the folder has a `stop`.

A file `fail-RANK` makes the worker of that rank remove it and end with code 7.
"""

import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
env = os.environ
rank, size, attempt = env["RANK"], env["WORLD_SIZE"], env["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(f"up {rank}/{size} attempt {attempt} node {env['GROUP_RANK']} pid {os.getpid()}\n")
sys.stdout.flush()
while not (folder / "stop").exists():
    if (folder / f"fail-{rank}").exists():
        (folder / f"fail-{rank}").unlink()
        sys.exit(7)
    time.sleep(0.02)
