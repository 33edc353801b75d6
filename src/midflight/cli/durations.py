"""Lengths of time as people write them (`90s`, `1h30m`) and as tables show them (`3m`)."""

from midflight.controller.quantities import age_text as shown
from midflight.controller.quantities import duration
from midflight.errors import UsageError

__all__ = ["parse", "shown"]


def parse(text: str) -> float:
    """Seconds; UsageError if it is no length of time."""
    try:
        seconds = duration(text)
    except UsageError:
        seconds = -1.0
    if seconds < 0:
        raise UsageError(f"wanted a length of time such as 90s, 10m or 1h30m, got {text!r}")
    return seconds
