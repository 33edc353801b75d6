"""A step between changes, over plain DDP's.

All systems are started once per repeat and then take turns, a second or so each, with the others
asleep at their gates (`bench/record.py`). A ratio is taken within each round, between turns that
are seconds apart, so that a machine that is slower for a minute is slower for both.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from bench.cases.pace import EVENT, START, Pace, pace
from bench.processes import Run
from bench.rows import Row
from bench.steps import block_step_time, reached
from bench.systems import Shape, System


def run(systems: Sequence[System], shape: Shape, rounds: int) -> list[Row]:
    own = pace(shape.megabytes)
    with ExitStack() as stack:
        runs = {system.name: stack.enter_context(Run(system.name)) for system in systems}
        for system in systems:
            runs[system.name].allow(own.settle)
            system.start(runs[system.name], shape)
        for each in runs.values():
            _await(each, own.settle, shape.workers, START)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(rounds):
            for name in order(list(runs), turn):
                times[name].append(_block(runs[name], own, shape.workers, turn))
    return _rows(times, shape)


def order(names: Sequence[str], turn: int) -> list[str]:
    """There and back, so that nobody always follows the same other."""
    return list(names) if turn % 2 == 0 else list(reversed(names))


def ratio(times: Sequence[float], base: Sequence[float]) -> float:
    return median(own / other for own, other in zip(times, base, strict=True))


def _block(each: Run, own: Pace, workers: int, turn: int) -> float:
    before = own.settle + turn * own.block
    last = before + own.block
    each.allow(last)
    _await(each, last, workers, EVENT)
    # The first step of a turn began behind the gate, and with cold caches the second one too.
    return block_step_time(each.lines, before + 2, last)


def _await(each: Run, step: int, workers: int, seconds: float) -> None:
    each.wait(f"step {step}", lambda lines: len(reached(lines, step)) >= workers, seconds, True)


def _rows(times: dict[str, list[float]], shape: Shape) -> list[Row]:
    size = (shape.megabytes, shape.workers)
    rows = []
    for name, own in times.items():
        rows.append(Row(name, "steady", *size, "step", 1000 * median(own), "ms"))
        if name != "ddp" and "ddp" in times:
            rows.append(Row(name, "steady", *size, "step / ddp", ratio(own, times["ddp"]), "x"))
    return rows
