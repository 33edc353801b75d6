"""Points in time: RFC 3339 in the API, local time and ages in front of people."""

import time
from datetime import datetime

from midflight import durations
from midflight.errors import UsageError


def epoch(text: str) -> float:
    """Seconds since 1970 of an RFC 3339 time; without a zone it is local time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"wanted a time such as 2026-01-31T12:00:00Z (RFC 3339), got {text!r}"
        ) from None


def age(text: str | None) -> str:
    return "N/A" if text is None else durations.shown(time.time() - epoch(text))


def local(text: str | None) -> str:
    """`2026-01-31 12:00:00`, nothing for what has not happened yet."""
    if text is None:
        return ""
    return datetime.fromtimestamp(epoch(text)).strftime("%Y-%m-%d %H:%M:%S")
