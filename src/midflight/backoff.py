"""Pauses between attempts: each is twice the one before, up to a longest.

Pure: whoever wants jitter passes `random.uniform`. Each pause is then drawn between a half and the
whole of its bound, so that many who were cut off at once do not all come back at once.
"""

from collections.abc import Callable, Iterator


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
