"""A schedule of sizes: `1:100,2:100,4:200` is one worker for 100 steps, then two, then four."""

from dataclasses import dataclass
from typing import Any

from midflight.arguments import LARGEST
from midflight.errors import UsageError


def check_size(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise UsageError(f"a size is a whole number from 1 to {LARGEST}, got {size!r:.40}")
    return int(size)


@dataclass(frozen=True)
class StepBasedSchedule:
    """The last size holds for ever after."""

    stages: tuple[tuple[int, int], ...]  # size, and the step at which the next one begins

    def __call__(self, step: int) -> int:
        """The size at that step, counted from 0."""
        for size, end in self.stages:
            if step < end:
                return size
        return self.stages[-1][0]

    @property
    def total(self) -> int:
        """How many steps are planned in all."""
        return self.stages[-1][1]


def parse(config: str) -> StepBasedSchedule:
    stages: list[tuple[int, int]] = []
    end = 0
    for part in config.split(","):
        size, colon, steps = part.strip().partition(":")
        if not colon or not size.isdecimal() or not steps.isdecimal() or int(steps) < 1:
            raise UsageError(
                f'a schedule is "SIZE:STEPS,...", as in "1:100,2:100", got {part!r:.40}'
            )
        end += int(steps)
        stages.append((check_size(int(size)), end))
    return StepBasedSchedule(tuple(stages))


def step_based_schedule(config: str, step: int | None = None) -> "StepBasedSchedule | int":
    """The size at `step`; without a step the schedule itself, which can be called with one."""
    schedule = parse(config)
    return schedule if step is None else schedule(step)
