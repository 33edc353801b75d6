"""What a verb prints: aligned columns for people, or with `-o` one of four formats.

JSON and YAML hold the keys of the API's views, `wide` shows more columns, `name` only names, one a
line, for `$(...)`. Times are RFC 3339 in the API, local times and ages in front of people. On a
terminal statuses are coloured, and a table that is too wide for it leaves columns out and says so.
With `--watch` it is shown again and again until Ctrl-C, in place on a terminal.
"""

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from midflight import durations
from midflight.arguments import offer
from midflight.cli import screen
from midflight.cli.columns import GAP, Fit, fit
from midflight.errors import UsageError
from midflight.printable import in_one_line
from midflight.terminal import CLEAR

FOR_MACHINES = ("json", "yaml", "name")
FORMATS = ("wide", *FOR_MACHINES)
_STATUSES = ("STATUS", "STATE", "TYPE")  # columns and fields that may have a colour
EVERY = 2.0  # seconds between two looks of `--watch`


def add(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *layouts: str) -> None:
    """`layouts`: for people, of this verb only."""
    known = (*FORMATS, *layouts)

    def check(text: str) -> str:
        if text and text not in known:
            raise UsageError(f"unknown output format,only support:[{'|'.join(known)}]")
        return text

    action = parser.add_argument(
        "-o", "--output", type=check, default="", metavar="FORMAT", help=" | ".join(known)
    )
    offer(action, known)


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


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    indent: int = 0,
    whole: bool = False,
) -> str:
    """`whole`: with all its columns, however wide that is.

    What others wrote into a cell makes no row of its own.
    """
    lines = [tuple(header), *(tuple(in_one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    columns = 0 if whole else screen.columns()
    shape = fit(header, widths, max(1, columns - indent) if columns else 0)
    shown = [row for line in lines for row in _rows(header, line, widths, shape)]
    if shape.left_out:
        names = ", ".join(header[column] for column in shape.left_out)
        shown.append(f"(not shown in {columns} columns: {names})")
    return "\n".join(f"{' ' * indent}{row}" for row in shown)


def _rows(
    header: Sequence[str], line: Sequence[str], widths: Sequence[int], shape: Fit
) -> list[str]:
    """One row of the terminal, or several where the last cell is wrapped."""
    *others, last = shape.kept
    cells = [_painted(header[c], line[c]) + " " * (widths[c] - len(line[c]) + GAP) for c in others]
    begin, pieces = "".join(cells), [_painted(header[last], line[last])]
    if len(line[last]) > shape.last:
        pieces = textwrap.wrap(line[last], shape.last)
    below = " " * sum(widths[c] + GAP for c in others)
    return [f"{below if n else begin}{piece}".rstrip() for n, piece in enumerate(pieces)]


def _painted(name: str, value: str) -> str:
    return screen.paint(value) if name.upper() in _STATUSES else value


def section(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table under a title: indented, with a line under each heading."""
    dashes = ["-" * len(name) for name in header]
    return f"{title}:\n{table(header, [dashes, *rows], indent=2)}"


def fields(values: Mapping[str, object], least: int = 0) -> str:
    """`Name:  value`, one a line; the values stand in column `least` or after it."""
    width = max(least, *(len(name) + 3 for name in values))
    return "\n".join(
        f"{name + ':':<{width}}{_painted(name, in_one_line(str(value)))}".rstrip()
        for name, value in values.items()
    )


# --- times ----------------------------------------------------------------------------------------


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


# --- --watch --------------------------------------------------------------------------------------


def add_watch(parser: argparse.ArgumentParser, *other_names: str) -> None:
    parser.add_argument(
        "-w",
        "--watch",
        *other_names,
        action="store_true",
        help=f"repeat every {EVERY:g} seconds until Ctrl-C",
    )


def show(text: Callable[[], str], *, again: bool) -> int:
    if not again:
        print(text())
        return 0
    try:
        while True:
            shown = text()
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            sys.stdout.write(f"{shown}\n")
            sys.stdout.flush()
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return 0
