"""What the terminal that shows stdout can take: how many columns, and whether colours.

Only statuses have colours, so that one that needs somebody stands out. Whatever is no terminal gets
plain text of any width, unless `--color always` asks for colours.
"""

import os
import sys
from collections.abc import Mapping

from midflight.errors import UsageError
from midflight.terminal import coloured

CHOICES = ("auto", "always", "never")
RED, GREEN, YELLOW = 31, 32, 33
_COLOURS = {
    GREEN: ("completed", "ready", "running", "stable", "succeeded"),
    RED: ("error", "failed", "max_wait_time_exceeded", "notready"),
    YELLOW: (
        "interrupted",
        "pending",
        "preparing",
        "queued",
        "queuing",
        "ready,schedulingdisabled",
        "recovering",
        "restarting",
        "rolling-back",
        "scaling",
        "starting",
        "switching",
        "terminating",
        "unknown",
        "waiting",
        "warning",
    ),
}
_OF_STATUS = {word: colour for colour, words in _COLOURS.items() for word in words}
_choice = "auto"


def choose(choice: str) -> None:
    """From now on; what `--color` says."""
    global _choice
    if choice not in CHOICES:
        raise UsageError(f"wanted --color auto, always or never, got {choice!r}")
    _choice = choice


def wants_colour(choice: str, terminal: bool, environ: Mapping[str, str]) -> bool:
    """NO_COLOR: see no-color.org."""
    if choice != "auto":
        return choice == "always"
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def has_colour() -> bool:
    return wants_colour(_choice, sys.stdout.isatty(), os.environ)


def columns() -> int:
    """0: it does not matter, or nobody knows."""
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0


def paint(status: str) -> str:
    """A status in its colour, where it has one and the reader wants it."""
    colour = _OF_STATUS.get(status.lower())
    return coloured(status, colour) if colour and has_colour() else status
