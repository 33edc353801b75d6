"""Lengths of time as people write them (`90s`, `1h30m`) and as tables show them (`3m`).

A table shows one unit, rounded down. A plain number is read as seconds.
"""

import math
import re

from midflight.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SHOWN = ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"), (365 * 86400, 86400, "d"))


def parse(text: str) -> float:
    """Seconds; UsageError if it is no length of time."""
    value = text.strip()
    if _NUMBER.fullmatch(value):
        return float(value)
    if not _WHOLE.fullmatch(value):
        raise UsageError(f"wanted a length of time such as 90s, 10m or 1h30m, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


def shown(seconds: float) -> str:
    if seconds < -1:
        return "<invalid>"
    whole = max(0, math.floor(seconds))
    for below, unit, letter in _SHOWN:
        if whole < below:
            return f"{whole // unit}{letter}"
    return f"{whole // (365 * 86400)}y"
