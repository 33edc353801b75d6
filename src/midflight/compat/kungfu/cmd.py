"""`kungfu.cmd`: workers from within a script, and what tells `-auto-recover` that training goes on.

Losses are always survived here, without being told of batches, so those functions do nothing.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from midflight.errors import JobFailed
from midflight.python310 import module_words
from midflight.run.hosted import MEMBER

__all__ = [
    "launch_multiprocess",
    "monitor_batch_begin",
    "monitor_batch_end",
    "monitor_epoch_end",
    "monitor_train_end",
]


def launch_multiprocess(f: Callable[[int], Any], np: int) -> None:
    """`f(rank)` in `np` processes of this machine, each of which runs the script up to here."""
    if os.environ.get(MEMBER):
        from midflight.compat.kungfu.python import current_rank

        f(current_rank())
        sys.exit(0)
    words = [*module_words("midflight.compat.kungfu.run"), "-q", "-np", str(np)]
    code = subprocess.run([*words, *sys.orig_argv]).returncode
    if code:
        raise JobFailed(f"the workers ended with exit code {code}")


def _nothing() -> None:
    """Nobody has to be told."""


monitor_batch_begin = monitor_batch_end = monitor_epoch_end = monitor_train_end = _nothing
