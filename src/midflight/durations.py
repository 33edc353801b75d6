"""Lengths of time as people write them (`90s`, `1h30m`) and as tables show them (`3m`).

`shown` writes one unit only, rounded down, as Arena's tables do.
"""

import re

from midflight.errors import UsageError

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_PIECE = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h|d)")
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_AGES = ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"), (365 * 86400, 86400, "d"))


def parse(text: str) -> float:
    """Seconds. 1h30m is 5400.0, and a number without a unit is in seconds."""
    body = text.strip()
    if re.fullmatch(_NUMBER, body):
        return float(body)
    pieces = _PIECE.findall(body)
    if not pieces or "".join(number + unit for number, unit in pieces) != body:
        raise UsageError(f"wanted a length of time such as 90s, 10m or 1h30m, got {text!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def shown(seconds: float) -> str:
    """One unit, rounded down: 59s, 1m, 23h, 364d, 1y."""
    if seconds < -1:  # the clock was set back by more than its usual drift
        return "<invalid>"
    whole = max(int(seconds), 0)
    for below, size, unit in _AGES:
        if whole < below:
            return f"{whole // size}{unit}"
    return f"{whole // (365 * 86400)}y"
