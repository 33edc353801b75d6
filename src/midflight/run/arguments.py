"""What the launcher and the other verbs share in reading a command line and reporting errors.

An error is one line, `midflight: error: ...`, that says what was wanted, what came and what to do.
Exit codes: 2 when the command line is wrong, 1 when something else is, 130 after Ctrl-C.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from midflight import terminal
from midflight.errors import MidflightError, UsageError

LARGEST = 10_000  # members or slots; what is beyond is a slip of the finger


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


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


def say(line: str) -> None:
    """Never waits for whoever reads it: the launcher says things while it looks after a job."""
    terminal.say(line)


def exit_code_of(work: Callable[[], int]) -> int:
    """Do the work; errors that are Midflight's own become one line and an exit code."""
    try:
        return _do(work)
    finally:
        terminal.drain()


def _do(work: Callable[[], int]) -> int:
    try:
        code = work()
        sys.stdout.flush()
        return code
    except MidflightError as error:
        say(f"error: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read this has seen enough, as in `midflight list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
