"""Submits a job, makes it larger while it trains, follows its log for a while, and deletes it."""

import sys
from pathlib import Path

import midflight as mf

TRAIN = Path(__file__).absolute().parents[1] / "02-own-epoch-loop" / "train.py"

client = mf.Client()  # finds the server of this machine, or starts it; or the cluster
client.submit(
    "steered", [sys.executable, str(TRAIN), "--epochs", "100000"], workers=1, max_workers=3
)
client.wait("steered", until="running")

change = client.scale("steered", add=1)  # returns when the training goes on with both
print(f"from {change.before} to {change.after}: {change.message}", flush=True)

shown = 0
for line in client.logs("steered", follow=True):
    print(line, flush=True)
    shown += "epoch" in line
    if shown == 3:
        break

for worker in client.get("steered").instances:
    print(worker.name, worker.status, flush=True)
client.delete("steered")
