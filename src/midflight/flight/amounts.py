"""Times, counts and rates as the picture and the summary show them."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone


def seconds(value: float) -> str:
    """85 ms, 1.2 s, 2:05, 1:02:05."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    return clock(value)


def clock(value: float) -> str:
    """0:05, 12:30, 1:02:05."""
    minutes, second = divmod(round(value), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def moment(at: float) -> datetime | None:
    """Of seconds since 1970, in UTC; None: no calendar has it."""
    try:
        return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=at)
    except (OverflowError, ValueError):
        return None


def short(value: float) -> str:
    """Three digits: 0.025, 950, 12.5k, 3.2M."""
    for limit, size, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if abs(value) < limit:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def speed(steps: float, samples: float) -> str:
    """20 steps/s, 1.98k samples/s."""
    return f"{short(steps)} steps/s" + (f", {short(samples)} samples/s" if samples else "")


def values(logged: Mapping[str, float | None]) -> str:
    """loss 0.21, lr 0.001."""
    return ", ".join(
        f"{' '.join(name.split())} {'not finite' if value is None else short(value)}"
        for name, value in logged.items()
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from low to high, at most so many and one."""
    span = high - low
    if not 1e-30 < span < 1e300:
        return [low]
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * each for each in (1, 2, 5, 10) if span / (size * each) <= most)
    first = math.ceil(low / step)
    return [step * each for each in range(first, math.floor(high / step + 1e-9) + 1)]


_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


def time_ticks(low: float, high: float, most: int) -> list[float]:
    """Whole seconds, minutes or hours."""
    span = high - low
    step = next((each for each in _TIMES if span / each <= most), 0) or 86400 * math.ceil(
        span / most / 86400
    )
    return [float(step * each) for each in range(math.ceil(low / step), int(high // step) + 1)]
