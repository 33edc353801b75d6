"""For tests: a server that kills itself at a chosen moment, as a power cut would.

`MIDFLIGHT_CRASH_AT=POINT:N`, or `POINT:N:EVENT`, is read once, by `main`. The process ends by
SIGKILL when it passes POINT for the N-th time; with EVENT (the name of a class of
`controller/events.py`) only passings that such an event has led to are counted. Tests enumerate
POINTS; the loop passes each of them for everything that it handles.
"""

import os
import signal
from collections.abc import Callable, Collection, Mapping

from midflight.errors import UsageError

VARIABLE = "MIDFLIGHT_CRASH_AT"
POINTS = ("before-save", "after-save", "before-command", "after-command", "before-answer")

# A point, and the names of the events that are being handled.
Passing = Callable[[str, Collection[str]], None]


def never(point: str, events: Collection[str]) -> None:
    """What is passed outside of tests."""


def passing_from(env: Mapping[str, str]) -> Passing:
    wish = env.get(VARIABLE)
    if not wish:
        return never
    point, _, rest = wish.partition(":")
    number, _, event = rest.partition(":")
    if point not in POINTS or not number.isdecimal() or int(number) < 1:
        raise UsageError(
            f"wanted {VARIABLE}=POINT:N[:EVENT] with POINT one of {', '.join(POINTS)}, got {wish!r}"
        )
    return _Countdown(point, int(number), event)


class _Countdown:
    def __init__(self, point: str, left: int, event: str) -> None:
        self._point = point
        self._left = left
        self._event = event

    def __call__(self, point: str, events: Collection[str]) -> None:
        if point != self._point or (self._event and self._event not in events):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
