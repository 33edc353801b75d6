"""Midflight's launcher for the cases; what it launches is `bench/midflight_train.py`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Run
from bench.systems import Shape

NAME = "bench"
SCRIPT = Path(__file__).with_name("midflight_train.py")


@dataclass
class MidflightFleet:
    run: Run
    untouchable: frozenset[int] = frozenset()  # anyone may leave

    def add(self) -> None:
        self._resize("--add")

    def remove(self) -> None:
        self._resize("--remove")

    def _resize(self, how: str) -> None:
        """A person's command, its own start-up included in what is measured."""
        arguments = ["-m", "midflight.cli.main", "resize", NAME, how, "1", "--timeout", "60"]
        self.run.start(arguments, home(self.run))


class Midflight:
    name = "midflight"

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
        return MidflightFleet(run)


def home(run: Run) -> dict[str, str]:
    return {"MIDFLIGHT_HOME": str(run.folder / "home")}
