"""Figures: one `Row` per repeat as it is measured, one per figure as it is reported.

`summarise` folds the repeats of a figure into their median and keeps the spread for the reader of
the table; the JSON holds the medians alone, in the seven fields of `Row`.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median


@dataclass(frozen=True)
class Row:
    system: str
    case: str
    megabytes: int  # of gradients; 0 where there are none
    workers: int
    metric: str
    value: float
    unit: str


@dataclass(frozen=True)
class Figure:
    """The median of the repeats, and how far they spread."""

    row: Row
    low: float
    high: float
    repeats: int


def summarise(rows: Iterable[Row]) -> list[Figure]:
    """One figure per group of rows that differ in nothing but the value, in order of appearance."""
    groups: dict[Row, list[float]] = {}
    for row in rows:
        groups.setdefault(replace(row, value=0.0), []).append(row.value)
    return [
        Figure(replace(key, value=median(values)), min(values), max(values), len(values))
        for key, values in groups.items()
    ]


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text, systems of one figure under each other."""
    head = ("case", "MB", "workers", "metric", "system", "median", "unit", "low..high", "n")
    order: dict[tuple[str, int, int, str], list[Figure]] = {}
    for figure in figures:
        row = figure.row
        order.setdefault((row.case, row.megabytes, row.workers, row.metric), []).append(figure)
    lines = [head, *(_cells(figure) for group in order.values() for figure in group)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, rule, *lines[1:])
    )


def to_json(figures: Sequence[Figure]) -> str:
    return json.dumps([asdict(figure.row) for figure in figures], indent=1) + "\n"


def _cells(figure: Figure) -> tuple[str, ...]:
    row = figure.row
    spread = f"{_number(figure.low)}..{_number(figure.high)}" if figure.repeats > 1 else ""
    return (
        row.case,
        str(row.megabytes or ""),
        str(row.workers),
        row.metric,
        row.system,
        _number(row.value),
        row.unit,
        spread,
        str(figure.repeats),
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
