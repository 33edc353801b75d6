"""Printing something again and again: in place on a terminal, one below the other elsewhere."""

import sys
import time
from collections.abc import Callable

EVERY = 2.0  # seconds
_CLEAR = "\x1b[H\x1b[2J"


def keep_printing(text: Callable[[], str]) -> int:
    """Until Ctrl-C, which is how one ends it."""
    try:
        while True:
            shown = text()
            sys.stdout.write(f"{_CLEAR if sys.stdout.isatty() else ''}{shown}\n")
            sys.stdout.flush()
            time.sleep(EVERY)
    except KeyboardInterrupt:
        return 0
