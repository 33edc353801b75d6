"""Lengths of time, read and shown."""

import pytest

from midflight import durations
from midflight.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1m0s", 60.0),
        ("10m", 600.0),
        ("90", 90.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1.5h", 5400.0),
        ("0", 0.0),
    ],
)
def test_durations_are_read_as_go_does_and_plain_numbers_are_seconds(
    text: str, seconds: float
) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "1m 0s", "-5s", "--5s", "nan", "m5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="wanted a length of time"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5.0, "<invalid>"),
        (-0.5, "0s"),
        (0.9, "0s"),
        (59.9, "59s"),
        (60.0, "1m"),
        (3599.0, "59m"),
        (3600.0, "1h"),
        (86399.0, "23h"),
        (86400.0, "1d"),
        (364 * 86400.0, "364d"),
        (365 * 86400.0, "1y"),
    ],
)
def test_an_age_has_one_unit_and_is_rounded_down(seconds: float, text: str) -> None:
    assert durations.shown(seconds) == text
