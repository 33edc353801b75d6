"""Amounts with units."""

import pytest

from midflight.errors import UsageError
from midflight.quantities import quantity


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
    with pytest.raises(UsageError, match="is not a quantity"):
        quantity(text)
