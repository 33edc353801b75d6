"""What a verb prints: aligned columns for people, or with `-o` one of four formats.

JSON and YAML hold the keys of the API's views, `wide` shows more columns, `name` only names, one a
line, for `$(...)`. Nothing is ever coloured.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence

from midflight.errors import UsageError

FOR_MACHINES = ("json", "yaml", "name")
FORMATS = ("wide", *FOR_MACHINES)


def add(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *layouts: str) -> None:
    """`layouts`: for people, of this verb only."""
    known = (*FORMATS, *layouts)

    def check(text: str) -> str:
        if text and text not in known:
            raise UsageError(f"unknown output format,only support:[{'|'.join(known)}]")
        return text

    parser.add_argument(
        "-o", "--output", type=check, default="", metavar="FORMAT", help=" | ".join(known)
    )


def data(format: str, value: object, names: Iterable[str]) -> bool:
    """Print it in the format of a machine; False if the format is one for people."""
    if format == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
    elif format == "yaml":
        print(as_yaml(value), end="")
    elif format == "name":
        print("".join(f"{name}\n" for name in names), end="")
    else:
        return False
    return True


def as_yaml(value: object) -> str:
    import yaml  # takes as long to load as all the rest

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    return text


# --- columns --------------------------------------------------------------------------------------


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
