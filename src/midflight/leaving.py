"""How a member ends that is no longer needed, or has failed: without the last second.

Taking apart an interpreter that has torch in it costs a second of a core, which the members that
stay would notice. So such a process ends after its `finally` clauses, its threads and what was
registered with `atexit` since Midflight was imported, and leaves the rest to the system. The system
also closes the connections of one that has failed: nobody hears of that before its agent does.
"""

import atexit
import contextlib
import os
import sys

_dismissed = False
_failure: int | None = None  # the exit code


def dismiss() -> None:
    """This process is on its way out, and the others come first from now on."""
    global _dismissed
    _dismissed = True
    with contextlib.suppress(OSError):
        os.nice(19)


def fail(code: int) -> None:
    """This process ends with that exit code, and nothing is said to the others before."""
    global _failure
    _failure = code


def _end_early() -> None:
    failed = getattr(sys, "last_value", None) is not None  # its traceback was printed
    if _failure is None and (failed or not _dismissed):
        return
    if "logging" in sys.modules:  # its own end was registered long before
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_failure or 0)


atexit.register(_end_early)  # what is registered later runs before it
