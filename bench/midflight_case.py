"""Midflight's launcher for the cases; what it launches is `bench/midflight_train.py`.

A resize is asked for from this process, as the peers' newcomers are started from it: the request
goes out at once. With `shape.command` it is a person's command line instead, whose own start-up
(a Python of 0.1 s, on the workers' cores) then counts.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Run
from bench.systems import Shape
from midflight.protocol.messages import ResizeRequested
from midflight.run.dial import call
from midflight.rundir import RunDir

NAME = "bench"
SCRIPT = Path(__file__).with_name("midflight_train.py")
SECONDS = 60.0  # then a resize is taken back


@dataclass
class MidflightFleet:
    run: Run
    by_command: bool
    seconds: float = SECONDS
    untouchable: frozenset[int] = frozenset()  # anyone may leave

    def add(self) -> None:
        self._resize(add=1)

    def remove(self) -> None:
        self._resize(remove=1)

    def _resize(self, add: int = 0, remove: int = 0) -> None:
        if self.by_command:
            how = ("--add", str(add)) if add else ("--remove", str(remove))
            resize = ("-m", "midflight.cli.main", "resize", NAME, *how, "--no-wait")
            self.run.start(resize, home(self.run))
            return
        wire = call(RunDir.of(NAME, home(self.run)))
        wire.send(ResizeRequested(None, add, remove, (), self.seconds))
        wire.close()


@dataclass
class Midflight:
    name: str = "midflight"
    script: Path = SCRIPT
    joining: str = "auto"  # how newcomers receive the state
    seconds: float = SECONDS

    def start(self, run: Run, shape: Shape) -> MidflightFleet:
        run.start(
            [
                *("-m", "midflight.run", "--name", NAME),
                *("-np", str(shape.workers), "--min-np", "1", "--max-np", "16"),
                *("-H", "localhost:16", "--warm", str(shape.warm), "--cooldown", "1", "60"),
                *("--", sys.executable, str(self.script), str(shape.megabytes), self.joining),
            ],
            home(run),
        )
        return MidflightFleet(run, shape.command, self.seconds)


def home(run: Run) -> dict[str, str]:
    return {"MIDFLIGHT_HOME": str(run.folder / "home")}
