"""Two things that Linux offers against orphans: a signal at the parent's death, and adoption.

Elsewhere both do nothing: there an agent's guard alone sees to it that nobody is left over, and
members are not forked from a template, which needs the adoption.
"""

import ctypes
import os
import signal
import sys

LINUX = sys.platform == "linux"
_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
# Loaded here, because nothing should be loaded between fork and exec.
_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None


def adopt_orphans() -> bool:
    """Descendants whose parents end become children of this process. False: not possible here."""
    return _libc is not None and _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends."""
    if _libc is not None:
        _libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def die_with(parent: int) -> None:
    """The same, also if that parent has ended already."""
    die_with_parent()
    if os.getppid() != parent:  # it died before the signal was asked for
        os._exit(1)
