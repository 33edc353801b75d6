"""A member dies or hangs: from the signal to the survivors' next step, and the steps they lost.

"to next step" is the longest wait of any survivor, counted from the signal, less a normal step (the
step that was in flight has to be done again, from its beginning); "gap" is the whole interval
between two of its steps, less a normal step. The normal step is the median of the survivors' steps
in the world after the event. Only the first few steps after it are looked at: a replacement's
start, a second later, is not the failure's pause.
"""

import os
import signal
import time

from bench.cases.pace import EVENT, pace
from bench.cases.resize import settle
from bench.processes import Run
from bench.rows import Row
from bench.steps import Line, by_who, longest_gap, longest_wait, step_time, steps_lost, up_to
from bench.systems import Fleet, Shape, System

SOON = 5  # steps after the signal within which the pause must show


def run(system: System, shape: Shape, repeat: int, kind: str) -> list[Row]:
    """`kind` is sigkill, sigstop, or host: the process that started the worker dies with it."""
    own = pace(shape.megabytes)
    with Run(system.name) as each:
        fleet = system.start(each, shape)
        settle(each, shape, own, spread(repeat))
        victim = _victim(fleet, shape, repeat)
        survivors = {line.who for line in each.poll()} - {victim.who}
        event = _strike(victim, kind)
        each.wait(
            f"{own.window} steps of every survivor of {kind}",
            lambda lines: _all_stepped(lines, survivors, event, own.window),
            EVENT,
        )
        return _rows(system.name, shape, kind, [x for x in each.lines if x.who in survivors], event)


def spread(repeat: int) -> int:
    """How many steps later to strike, so that the repeats fall anywhere between checkpoints."""
    return 17 * repeat % 50


def _victim(fleet: Fleet, shape: Shape, repeat: int) -> Line:
    """Another one in each repeat."""
    last = {line.who: line for line in fleet.run.poll() if line.size == shape.workers}
    mortal = sorted(who for who in last if who not in fleet.untouchable)
    return last[mortal[repeat % len(mortal)]]


def _strike(victim: Line, kind: str) -> float:
    event = time.monotonic()
    if kind == "host":
        os.kill(victim.who, signal.SIGKILL)
    os.kill(victim.pid, signal.SIGSTOP if kind == "sigstop" else signal.SIGKILL)
    return event


def _all_stepped(lines: list[Line], survivors: set[int], event: float, count: int) -> bool:
    after = by_who(line for line in lines if line.t > event)
    return all(len(after.get(who, ())) >= count for who in survivors)


def _rows(name: str, shape: Shape, kind: str, lines: list[Line], event: float) -> list[Row]:
    head = (name, "failure", shape.megabytes, shape.workers)
    normal = step_time(lines, None, event)
    logs = [up_to(own, event, SOON) for own in by_who(lines).values()]
    wait = max(longest_wait(own, event) for own in logs) - normal
    gap = max(longest_gap(own, event) for own in logs) - normal
    return [
        Row(*head, f"{kind} to next step", 1000 * wait, "ms"),
        Row(*head, f"{kind} gap", 1000 * gap, "ms"),
        Row(*head, f"{kind} steps lost", steps_lost(lines), "steps"),
    ]
