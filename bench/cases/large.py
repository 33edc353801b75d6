"""A state of gigabytes: a scale-out by one, a SIGKILL, and the replacement of the lost worker.

All in one job of two ways, `midflight-blocking` and `midflight-shadow`, on `bench/gpt_train.py`.
"gap" is the longest interval between two steps of a survivor, less a normal step of the larger
world; "pace" compares the survivors' steps from the request to the newcomer's first share, all that
happens meanwhile included, with their steps before it. `MIDFLIGHT_*` and `BENCH_*` in the
environment reach the script; the jobs' logs are kept in the folder BENCH_KEEP, if there is one.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

from bench.cases.resize import worst_gap
from bench.midflight_case import Midflight
from bench.processes import Run
from bench.rows import Row
from bench.steps import Line, by_who, first_step, longest_gap, longest_wait, members, step_time
from bench.systems import Shape, System

SCRIPT = Path(__file__).parent.parent / "gpt_train.py"
SETTLE, WINDOW = 4, 6  # steps
PATIENCE = 500.0  # seconds


def run(system: System, shape: Shape) -> list[Row]:
    assert isinstance(system, Midflight)
    size = shape.workers
    head = (system.name, "large", shape.megabytes, size)
    system = replace(system, script=SCRIPT, seconds=PATIENCE)
    with Run(system.name) as each:
        try:
            fleet = system.start(each, shape)
            _await(each, size, 0.0, SETTLE)
            quiet = time.monotonic()
            _await(each, size, quiet, WINDOW)
            old = {line.who for line in each.lines}
            normal = step_time(each.lines, size, quiet)
            rows = [
                Row(*head, "step", 1000 * normal, "ms"),
                Row(*head, "quiet gap", 1000 * worst_gap(each.lines, size, quiet), "ms"),
            ]
            asked = time.monotonic()
            fleet.add()
            _await(each, size + 1, asked, WINDOW)
            new = {line.who for line in each.lines} - old
            took = first_step(each.lines, new, asked)
            share = _pace(each.lines, old, asked, asked + took, normal)
            gap = worst_gap(each.lines, size + 1, asked, old)
            rows += [
                Row(*head, "scale-out gap", 1000 * gap, "ms"),
                Row(*head, "scale-out took", took, "s"),
                Row(*head, "scale-out pace", 100 * share, "%"),
            ]
            return rows + _lose_one(each, shape, head, old)
        finally:
            _keep(each, f"{system.name}-{shape.megabytes}")


def _lose_one(each: Run, shape: Shape, head: tuple[str, str, int, int], old: set[int]) -> list[Row]:
    size = shape.workers + 1
    last = {line.who: line for line in each.poll()}
    victim = last[max(old)]
    left = set(last) - {victim.who}
    struck = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    _await(each, size - 1, struck, 2)
    _await(each, size, struck, WINDOW)
    soon = sorted(line.t for line in each.lines if line.t > struck and line.size == size - 1)
    normal = step_time(each.lines, size - 1, struck)
    logs = by_who(line for line in each.lines if line.who in left)
    waits = [
        longest_wait([line for line in own if line.t <= max(soon[:2])], struck)
        for own in logs.values()
    ]
    again = max(soon[: 2 * len(left)])
    full = min(line.t for line in each.lines if line.t > struck and line.size == size)
    gaps = [longest_gap(own, again, full + 1) for own in logs.values()]
    after = step_time(each.lines, size, full)
    return [
        Row(*head, "sigkill to next step", 1000 * (max(waits) - normal), "ms"),
        Row(*head, "replacement gap", 1000 * (max(gaps) - after), "ms"),
        Row(*head, "replacement took", full - struck, "s"),
    ]


def _pace(
    lines: list[Line], who: Collection[int], since: float, until: float, normal: float
) -> float:
    """The share of their speed that these keep meanwhile; 0.0: none made two steps."""
    during = by_who(line for line in lines if line.who in who and since <= line.t <= until)
    steps = [(own[-1].t - own[0].t) / (len(own) - 1) for own in during.values() if len(own) > 1]
    return normal / max(steps) if steps else 0.0


def _await(each: Run, size: int, since: float, count: int) -> None:
    each.wait(
        f"{count} steps of {size} workers",
        lambda lines: len(members(lines, size, since, count)) >= size,
        PATIENCE,
    )


def _keep(each: Run, name: str) -> None:
    if (folder := os.environ.get("BENCH_KEEP")) is None:
        return
    kept = Path(folder) / name
    kept.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(asdict(line)) for line in each.poll()]
    (kept / "steps.jsonl").write_text("\n".join(lines))
    for path in (*each.folder.glob("*.out"), *each.folder.glob("home/**/*.jsonl")):
        shutil.copy(path, kept / path.name)
