"""What a case asks of a system, so that one case serves them all."""

from dataclasses import dataclass
from typing import Protocol

from bench.processes import Run


@dataclass(frozen=True)
class Shape:
    """How a job is started."""

    megabytes: int
    workers: int
    gated: bool = False  # fixed size, takes turns with others; see bench/record.py
    warm: int = 0  # standby processes, where a system has such
    command: bool = False  # ask for a resize by the system's command, where it has one


class Fleet(Protocol):
    """A running job, started and to be ended with its `run`."""

    run: Run

    @property
    def untouchable(self) -> frozenset[int]:
        """Whom (see `bench/steps.py`) no case may kill, for the system would not survive it."""

    def add(self) -> None:
        """Ask for one more worker; returns as soon as that is asked."""

    def remove(self) -> None:
        """Ask for one worker less, in the system's most orderly way."""


class System(Protocol):
    name: str

    def start(self, run: Run, shape: Shape) -> Fleet: ...
