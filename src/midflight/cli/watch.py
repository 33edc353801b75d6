"""`--watch`: what a verb shows is shown again and again until Ctrl-C, in place on a terminal."""

import argparse
import sys
import time
from collections.abc import Callable

from midflight.terminal import CLEAR

EVERY = 2.0  # seconds between two looks


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
