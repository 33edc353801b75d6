"""Two names, one program: `midflight` and `arena`. Hints speak of the one that was called."""

import sys
from pathlib import PurePath

NAMES = ("midflight", "arena")


def name() -> str:
    called = PurePath(sys.argv[0]).name if sys.argv else ""
    return called if called in NAMES else NAMES[0]
