"""How many steps the cases wait for, and how long: a big model's step takes ten times as long."""

from dataclasses import dataclass

START = 120.0  # seconds until a world is stepping, torch's start-up on a busy machine included
EVENT = 90.0  # seconds until an event is over; torchrun needs 12 when all is well


@dataclass(frozen=True)
class Pace:
    settle: int  # steps before anything is measured
    window: int  # steps that a median is taken over
    block: int  # steps of one turn in the steady case


def pace(megabytes: int) -> Pace:
    return Pace(30, 40, 30) if megabytes < 10 else Pace(6, 12, 6)
