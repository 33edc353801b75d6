"""Numbers as people write them: Kubernetes quantities, Go-like durations, and ages.

`quantity` reads "500m", "2Gi" or "1.5"; `duration` reads "1h30m", "500ms" or plain seconds and lets
a minus sign pass, since what is too small differs from flag to flag. `age_text` writes one unit
only, rounded down, as Arena's tables do.
"""

import re

from midflight.errors import UsageError

_NUMBER = r"(?:\d+\.?\d*|\.\d+)"
_QUANTITY = re.compile(rf"({_NUMBER})(?:(e[+-]?\d{{1,2}})|([a-z]{{1,2}}))?", re.IGNORECASE)
_PIECE = re.compile(rf"({_NUMBER})(ns|us|µs|ms|s|m|h|d)")
_SUFFIXES = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}
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


def quantity(text: str) -> float:
    """2Gi is 2147483648.0, 500m is 0.5."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is not None:
        number, exponent, suffix = found.groups()
        if suffix is None:
            return float(number + (exponent or ""))
        if suffix in _SUFFIXES:
            return float(number) * _SUFFIXES[suffix]
    raise UsageError(f"{text!r} is no quantity; write a number such as 2, 1.5, 500m or 4Gi")


def duration(text: str) -> float:
    """Seconds. 1h30m is 5400.0, and a number without a unit is in seconds."""
    body = text.strip()
    sign, body = (-1.0, body[1:]) if body.startswith("-") else (1.0, body)
    if re.fullmatch(_NUMBER, body):
        return sign * float(body)
    pieces = _PIECE.findall(body)
    if not pieces or "".join(number + unit for number, unit in pieces) != body:
        raise UsageError(f"{text!r} is no duration; write 90, 90s, 10m or 1h30m")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in pieces)


def age_text(seconds: float) -> str:
    """One unit, rounded down: 59s, 1m, 23h, 364d, 1y."""
    if seconds < -1:  # the clock was set back by more than its usual drift
        return "<invalid>"
    whole = max(int(seconds), 0)
    for below, size, unit in _AGES:
        if whole < below:
            return f"{whole // size}{unit}"
    return f"{whole // (365 * 86400)}y"
