"""A worker that says what it is, and that it has saved its work when it is told to end."""

import os
import signal
import sys
from types import FrameType


def save(number: int, frame: FrameType | None) -> None:
    print("saved", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print(f"up {os.environ['RANK']}/{os.environ['WORLD_SIZE']} pid {os.getpid()}", flush=True)
while True:
    signal.pause()
