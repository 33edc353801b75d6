"""What the step logs say. Pure: lines in, seconds and counts out.

A line is one step that one training process completed. All times are `time.monotonic()`, which
the processes of one machine share. `who` is the identity that survives the event being measured:
the training process, or, for torchrun, whose workers never survive, the agent above it.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


@dataclass(frozen=True)
class Line:
    who: int
    pid: int
    t: float
    step: int
    size: int


def parse(text: str) -> list[Line]:
    """The lines of a log; a last line without its newline is still being written and left out."""
    whole = text[: text.rfind("\n") + 1]
    return [Line(**json.loads(line)) for line in whole.splitlines()]


def by_who(lines: Iterable[Line]) -> dict[int, list[Line]]:
    """Each one's lines in the order of time."""
    found: dict[int, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line.t):
        found.setdefault(line.who, []).append(line)
    return found


def step_time(lines: Iterable[Line], size: int | None, since: float) -> float:
    """The median step since then of all members of a world of that size, or of any one size."""
    gaps = [
        after.t - before.t
        for own in by_who(lines).values()
        for before, after in pairwise(own)
        if before.size == after.size and size in (None, after.size) and before.t >= since
    ]
    if not gaps:
        raise ValueError(f"no two steps in a row at size {size} after {since:.3f}")
    return median(gaps)


def block_step_time(lines: Iterable[Line], first: int, last: int) -> float:
    """The median step of a block; the end of its step `first` only starts the clock."""
    gaps = [
        after.t - before.t
        for own in by_who(lines).values()
        for before, after in pairwise(own)
        if first <= before.step and after.step <= last
    ]
    if not gaps:
        raise ValueError(f"no two steps in a row between {first} and {last}")
    return median(gaps)


def up_to(own: Sequence[Line], event: float, count: int) -> list[Line]:
    """One survivor's lines, no more than `count` of them after the event."""
    before = sum(line.t <= event for line in own)
    return list(own[: before + count])


def longest_gap(own: Sequence[Line], since: float, until: float = math.inf) -> float:
    """The longest time between two steps of one survivor, the one that `since` falls into too."""
    return max(
        after.t - before.t
        for before, after in pairwise(own)
        if after.t > since and before.t < until
    )


def aftermath(own: Sequence[Line], size: int, since: float, steps: int) -> float:
    """When a survivor has made so many steps at the new size."""
    times = [line.t for line in own if line.t > since and line.size == size]
    return times[min(steps, len(times)) - 1]


def longest_wait(own: Sequence[Line], event: float) -> float:
    """The longest time without a step that begins at or after the event.

    A gap that the event fell into counts from the event on. It is the longest and not the first
    one, because a step that was nearly done may still complete after a peer's death.
    """
    return max(after.t - max(before.t, event) for before, after in pairwise(own) if after.t > event)


def switch_gap(own: Sequence[Line], size: int, since: float) -> float:
    """From a survivor's last step at another size to its first step at the new size."""
    for before, after in pairwise(own):
        if after.t > since and before.size != size and after.size == size:
            return after.t - before.t
    raise ValueError(f"never switched to size {size} after {since:.3f}")


def first_step(lines: Iterable[Line], newcomers: Iterable[int], since: float) -> float:
    """From the request to the first step of the first newcomer that made one."""
    wanted = set(newcomers)
    return min(line.t for line in lines if line.who in wanted and line.t > since) - since


def steps_lost(lines: Iterable[Line]) -> int:
    """How many steps a survivor had to do again, and how many numbers nobody ever completed.

    A survivor that was given the state of one who had come a step further jumps over that step;
    it is not lost, for the other one did complete it.
    """
    times = Counter((who, line.step) for who, own in by_who(lines).items() for line in own)
    again = {step for (_, step), count in times.items() if count > 1}
    done = {step for _, step in times}
    return len(again) + max(done) - min(done) + 1 - len(done)


def members(lines: Iterable[Line], size: int, since: float, count: int) -> set[int]:
    """Who has completed at least `count` steps in a world of that size since then."""
    done: dict[int, int] = {}
    for line in lines:
        if line.size == size and line.t > since:
            done[line.who] = done.get(line.who, 0) + 1
    return {who for who, steps in done.items() if steps >= count}


def reached(lines: Iterable[Line], step: int) -> set[int]:
    """Who has completed that step."""
    return {line.who for line in lines if line.step >= step}
