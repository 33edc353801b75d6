"""Amounts of CPU and memory as Kubernetes writes them ("500m", "2Gi" or "1.5"), and counts."""

import re

from midflight.errors import UsageError

_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:(e[+-]?\d{1,2})|([a-z]{1,2}))?", re.IGNORECASE)
_SUFFIXES = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}


def quantity(text: str) -> float:
    """2Gi is 2147483648.0, 500m is 0.5."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is not None:
        number, exponent, suffix = found.groups()
        if suffix is None:
            return float(number + (exponent or ""))
        if suffix in _SUFFIXES:
            return float(number) * _SUFFIXES[suffix]
    raise UsageError(f"{text!r} is not a quantity; write a number such as 2, 1.5, 500m or 4Gi")


def counted(number: int, noun: str) -> str:
    """1 member, 2 members."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
