"""Aligned columns."""

from collections.abc import Mapping, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [tuple(header), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def section(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table under a title: indented, with a line under each heading."""
    dashes = ["-" * len(name) for name in header]
    lines = table(header, [dashes, *rows]).split("\n")
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])


def fields(values: Mapping[str, object]) -> str:
    """`Name:  value`, one a line."""
    width = max(len(name) for name in values) + 3
    return "\n".join(f"{name + ':':<{width}}{value}".rstrip() for name, value in values.items())
