"""Knowing that a script has come to its end, and whether by an error.

KungFu's scripts do not say that they are done; they end. An error that nobody catches, and
`sys.exit` with anything but 0, are failures.
"""

import atexit
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def watch_the_end(then: Callable[[bool], None]) -> None:
    """`then` is called when the interpreter ends, with whether the script has failed."""
    failed = False
    usual_hook, usual_exit = sys.excepthook, sys.exit

    def hook(kind: Any, value: Any, trace: Any) -> None:
        nonlocal failed
        failed = True
        usual_hook(kind, value, trace)

    def exit_with(status: Any = None, /) -> NoReturn:
        nonlocal failed
        failed = status not in (None, 0)
        usual_exit(status)

    sys.excepthook = hook
    sys.exit = exit_with
    atexit.register(lambda: then(failed))
