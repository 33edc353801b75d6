"""Reading a command line, for every program of Midflight: the parser, and the types of its options.

A parser raises UsageError instead of ending the process; what becomes of an error is `console`'s.
"""

import argparse
import math
from collections.abc import Callable, Iterable
from typing import NoReturn

from midflight.errors import UsageError

LARGEST = 10_000  # members or slots; what is beyond is a slip of the finger


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: -"):
            raise UsageError(f"{message}; {self.flags_there_are()}")
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def flags_there_are(self) -> str:
        """Each under its long name; what help does not show is not named."""
        shown = (action for action in self._actions if action.help != argparse.SUPPRESS)
        named = (action.option_strings for action in shown if action.option_strings)
        names = (next((name for name in all_ if name[:2] == "--"), all_[0]) for all_ in named)
        return f"the flags of `{self.prog}`: {', '.join(sorted(names))}"


def offer(action: argparse.Action, values: Iterable[str]) -> None:
    """What a shell's completion offers for it. What is accepted is decided elsewhere."""
    vars(action)["offered"] = tuple(values)


def count_from(least: int) -> Callable[[str], int]:
    """The type of an option that counts members, slots or the like."""

    def read(text: str) -> int:
        if not text.lstrip("-").isdecimal() or not least <= int(text) <= LARGEST:
            raise argparse.ArgumentTypeError(
                f"wanted a whole number from {least} to {LARGEST}, got {text!r}"
            )
        return int(text)

    return read


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"wanted a number of seconds, 0 or more, got {text!r}")
    return value
