"""Pauses: between attempts that fail, between restarts of what dies, between looks.

Each pause between attempts is twice the one before, up to a longest. Pure: whoever wants jitter
passes `random.uniform`. Each pause is then drawn between a half and the whole of its bound, so that
many who were cut off at once do not all come back at once.
"""

from collections.abc import Callable, Iterator

# Between two looks at what gives no event: a file, a process that is not a child, another program.
LOOK = 0.05
LOOK_RARELY = 0.25  # where many look, or a look costs more

# A coordinator that does not answer is dialled again: first and longest pause.
REDIAL = (0.05, 1.0)

# A process, or an instance of a job, that dies is started again after ever longer pauses.
RESTART, LONGEST_RESTART = 0.5, 30.0
CALM = 60.0  # a process that has lived for so long starts over with the first pause


def pause(first: float, longest: float, failures: int) -> float:
    """The pause after so many earlier failures: `first` after none of them."""
    return min(longest, first * 2.0 ** min(failures, 64))


def pauses(
    first: float, longest: float, draw: Callable[[float, float], float] | None = None
) -> Iterator[float]:
    """All of them, one after the other; with `draw` as their jitter."""
    failures = 0
    while True:
        bound = pause(first, longest, failures)
        yield bound if draw is None else draw(bound / 2, bound)
        failures += 1


def restart_pause(deaths: int) -> float:
    """Before the next start of what has died so often in a row, this time included."""
    return pause(RESTART, LONGEST_RESTART, deaths - 1)
