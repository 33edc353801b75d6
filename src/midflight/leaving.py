"""How a member that is no longer needed ends: in the usual order, but without the last second.

Taking apart an interpreter that has torch in it costs a second of a core, which the members that
stay would notice. So a dismissed process ends after its `finally` clauses, its threads and what
was registered with `atexit` since Midflight was imported, and leaves the rest to the system.
"""

import atexit
import contextlib
import os
import sys

_dismissed = False


def dismiss() -> None:
    """This process is on its way out, and the others come first from now on."""
    global _dismissed
    _dismissed = True
    with contextlib.suppress(OSError):
        os.nice(19)


def _end_early() -> None:
    failed = getattr(sys, "last_value", None) is not None  # its traceback was printed
    if not _dismissed or failed:
        return
    if "logging" in sys.modules:  # its own end was registered long before
        sys.modules["logging"].shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


atexit.register(_end_early)  # what is registered later runs before it
