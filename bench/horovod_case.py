"""Horovod's API on Midflight, for the cases; what it launches is `bench/horovod_train.py`."""

import sys
from pathlib import Path

from bench.midflight_case import NAME, MidflightFleet, home
from bench.processes import Run
from bench.systems import Shape

SCRIPT = Path(__file__).with_name("horovod_train.py")


class Horovod:
    name = "horovod"

    def start(self, run: Run, shape: Shape) -> MidflightFleet:
        run.start(
            [
                *("-m", "midflight.run", "--name", NAME),
                *("-np", str(shape.workers), "--min-np", "1", "--max-np", "16"),
                *("-H", "localhost:16", "--warm", str(shape.warm), "--cooldown", "1", "60"),
                *("--", sys.executable, str(SCRIPT), str(shape.megabytes)),
            ],
            home(run),
        )
        return MidflightFleet(run, shape.command)
