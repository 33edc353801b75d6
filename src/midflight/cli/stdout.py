"""Where answers go, when that place is closed or full: one line instead of a trace.

Whoever reads an answer through a pipe and has seen enough is not an error; `exit_code_of` knows it.
"""

import os
import sys
from collections.abc import Callable, Sequence

from midflight.errors import JobFailed


def be_there() -> None:
    """A program may be started without one (`>&-`); then nobody wants to read it."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def told(verb: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    try:
        code = verb(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:  # of another file
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise JobFailed(f"cannot write the answer: {error.strerror}; look at its disk") from None
    return code
