"""What was done to a training, and whether it took it well: a table, and what broke."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from midflight.chaos.choice import Strike
from midflight.protocol import codec


@dataclass(frozen=True)
class Outcome:
    at: float  # seconds since the first strike could have come
    strike: Strike
    effect: str
    went_on: float | None  # seconds from the strike to the next step; None: never

    @property
    def target(self) -> str:
        if self.strike.peer:
            return f"{self.strike.target}/{self.strike.peer}"
        return self.strike.target or (f"to {self.strike.to}" if self.strike.to else "-")

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        lasted = f"{self.strike.seconds:.1f}s" if self.strike.seconds else "-"
        went_on = "NEVER" if self.went_on is None else f"{self.went_on:.1f}s"
        return f"{self.at:.1f}s", self.strike.action, self.target, lasted, went_on


HEADER = ("TIME", "STRIKE", "TARGET", "LASTED", "WENT ON AFTER", "EFFECT")


@dataclass(frozen=True)
class Report:
    seed: int
    outcomes: tuple[Outcome, ...]
    impossible: dict[str, str]  # action to the reason
    broke: str = ""  # "": training went on after each strike

    @property
    def verdict(self) -> str:
        count = len(self.outcomes)
        strikes = "1 strike" if count == 1 else f"{count} strikes"
        return self.broke or f"training continued after each of {strikes}"

    def rows(self) -> list[Sequence[object]]:
        return [(*outcome.row, outcome.effect) for outcome in self.outcomes]

    def as_view(self) -> dict[str, Any]:
        strikes = [
            {**codec.as_view(o.strike), "at": o.at, "effect": o.effect, "wentOnAfter": o.went_on}
            for o in self.outcomes
        ]
        return {
            "seed": self.seed,
            "strikes": strikes,
            "impossible": self.impossible,
            "broke": self.broke,
        }
