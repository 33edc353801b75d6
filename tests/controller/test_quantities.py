"""Numbers with units."""

import pytest

from midflight.controller.quantities import age_text, duration, quantity
from midflight.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("500m", 0.5),
        ("2Gi", 2 * 1024.0**3),
        ("1k", 1000.0),
        ("3M", 3e6),
        ("1Ki", 1024.0),
        ("1e3", 1000.0),
        ("2E", 2e18),
        ("0", 0.0),
    ],
)
def test_quantities_are_read_as_kubernetes_does(text: str, value: float) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "2GB", "2gi", "-1", "1,5", "nan", "inf", "2 Gi", "0x1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no quantity"):
        quantity(text)


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
        ("-5s", -5.0),
    ],
)
def test_durations_are_read_as_go_does_and_plain_numbers_are_seconds(
    text: str, seconds: float
) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "1m 0s", "--5s", "nan", "m5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration"):
        duration(text)


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
    assert age_text(seconds) == text
