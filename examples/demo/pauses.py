"""What the members' step logs say about an event. Pure: lines in, seconds out.

All times are of the monotonic clock, which the processes of one machine share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

BEFORE = 60  # steps before an event that show what a normal one takes


@dataclass(frozen=True)
class Step:
    at: float
    number: int
    epoch: int


Logs = Mapping[str, Sequence[Step]]  # by member


@dataclass(frozen=True)
class Pause:
    normal: float  # the median step before the event
    longest: float  # the longest time between two steps of a survivor around it

    @property
    def extra(self) -> float:
        return max(0.0, self.longest - self.normal)


def parse(text: str) -> list[Step]:
    """A last line without its end is still being written, or its writer was killed."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    fields = [line.split() for line in lines]
    return [Step(float(at), int(number), int(epoch)) for at, number, epoch in fields]


def steps_since(log: Sequence[Step], moment: float) -> int:
    return sum(step.at > moment for step in log)


def pause(logs: Logs, survivors: Iterable[str], since: float, until: float) -> Pause:
    """What an event between these two moments cost those who were there before and after."""
    normal, around = [], []
    for name in survivors:
        gaps = list(pairwise(logs[name]))
        quiet = [after.at - before.at for before, after in gaps if after.at <= since]
        normal += quiet[-BEFORE:]
        around += [b.at - a.at for a, b in gaps if b.at > since and a.at < until]
    if not normal or not around:
        raise ValueError("nobody made steps both before and after the event")
    return Pause(median(normal), max(around))


def first_step(logs: Logs, since: float) -> float | None:
    """How long after that moment the last of the newcomers made its first step."""
    firsts = [log[0].at - since for log in logs.values() if log and log[0].at > since]
    return max(firsts, default=None)


def current_epoch(logs: Logs) -> int:
    return max((log[-1].epoch for log in logs.values() if log), default=0)
