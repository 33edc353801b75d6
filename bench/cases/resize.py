"""One worker more, then one less: what the survivors notice, and when the newcomer steps.

What is subtracted as "a normal step" is the median step of the world *after* the event, for both
directions: the interrupted interval ends with a step of that world, and on a machine with fewer
cores than workers a bigger world's step takes longer. Of the survivors the one that waited longest
counts. Two figures are given: "gap", the longest interval between the request and the tenth step
at the new size, and "switch", the interval in which the size changed. The first also holds whatever
else happened meanwhile (a cold newcomer's imports compete for the cores, and so does a leaver's
end); "quiet gap" is the same figure over ten steps in which nothing was asked, to judge that by.
"""

import time
from collections.abc import Collection, Iterable

from bench.broadcast import broadcast_seconds
from bench.cases.pace import EVENT, START, Pace, pace
from bench.processes import Run
from bench.rows import Row
from bench.steps import (
    Line,
    aftermath,
    by_who,
    first_step,
    longest_gap,
    members,
    step_time,
    switch_gap,
)
from bench.systems import Fleet, Shape, System

AFTERMATH = 10  # steps at the new size that still count as the event's
BIG = 10  # megabytes from which on a pause is compared to a broadcast of the state


def run(system: System, shape: Shape) -> list[Row]:
    """Scale-out and scale-in of one fleet, and at a big size the broadcast to compare with."""
    own = pace(shape.megabytes)
    head = (system.name, "resize", shape.megabytes, shape.workers)
    with Run(system.name) as each:
        fleet = system.start(each, shape)
        settle(each, shape, own)
        since = time.monotonic()
        _await(each, shape.workers, since, own.window)
        quiet = worst_gap(each.lines, shape.workers, since)
        rows = [Row(*head, "quiet gap", 1000 * quiet, "ms")]
        out, switched_out, _ = grow(fleet, shape, own)
        into, switched_in = _shrink(fleet, shape, own)
    for name, gap, switch in (
        ("scale-out", out, switched_out),
        ("scale-in", into, switched_in),
    ):
        rows.append(Row(*head, f"{name} gap", 1000 * gap, "ms"))
        rows.append(Row(*head, f"{name} switch", 1000 * switch, "ms"))
    if shape.megabytes >= BIG:
        rows += _against_broadcast(head, shape, {"scale-out": out, "scale-in": into})
    return rows


def settle(each: Run, shape: Shape, own: Pace, more: int = 0) -> None:
    """Until the fleet has made its first steps, and `more`."""
    count, size = own.settle + more, shape.workers
    each.wait(
        f"{count} steps of {size} workers",
        lambda lines: len(members(lines, size, 0.0, count)) >= size,
        START,
        unharmed=True,
    )
    if shape.warm:
        time.sleep(5)  # the standbys import torch meanwhile, and say nothing when they are done


def grow(fleet: Fleet, shape: Shape, own: Pace) -> tuple[float, float, float]:
    """Gap and switch beyond a normal step, and the seconds from request to the first step."""
    each, size = fleet.run, shape.workers + 1
    old = {line.who for line in each.poll()}
    asked = time.monotonic()
    fleet.add()
    _await(each, size, asked, own.window)
    gap = worst_gap(each.lines, size, asked, old)
    switch = _worst_switch(each.lines, size, asked, old)
    new = {line.who for line in each.lines} - old
    return gap, switch, first_step(each.lines, new, asked)


def _shrink(fleet: Fleet, shape: Shape, own: Pace) -> tuple[float, float]:
    each, size = fleet.run, shape.workers
    asked = time.monotonic()
    fleet.remove()
    _await(each, size, asked, own.window)
    staying = members(each.lines, size, asked, own.window)
    gap = worst_gap(each.lines, size, asked, staying)
    return gap, _worst_switch(each.lines, size, asked, staying)


def worst_gap(
    lines: list[Line], size: int, since: float, survivors: Collection[int] | None = None
) -> float:
    """The longest gap of any survivor (default: of anyone) less a normal step of that size."""
    normal = step_time(lines, size, since)
    logs = {who: own for who, own in by_who(lines).items() if not survivors or who in survivors}
    gaps = [
        longest_gap(own, since, aftermath(own, size, since, AFTERMATH)) for own in logs.values()
    ]
    return max(gaps) - normal


def _worst_switch(lines: list[Line], size: int, since: float, survivors: Iterable[int]) -> float:
    normal = step_time(lines, size, since)
    logs = by_who(lines)
    return max(switch_gap(logs[who], size, since) for who in survivors) - normal


def _await(each: Run, size: int, since: float, count: int) -> None:
    each.wait(
        f"{count} steps of {size} workers",
        lambda lines: len(members(lines, size, since, count)) >= size,
        EVENT,
    )


def _against_broadcast(
    head: tuple[str, str, int, int], shape: Shape, gaps: dict[str, float]
) -> list[Row]:
    """The state's broadcast among as many processes as take part after the scale-out."""
    size = shape.workers + 1
    seconds = broadcast_seconds(shape.megabytes, size)
    rows = [Row("gloo", "resize", shape.megabytes, size, "broadcast state", 1000 * seconds, "ms")]
    for name, gap in gaps.items():
        rows.append(Row(*head, f"{name} gap / broadcast", gap / seconds, "x"))
    return rows
