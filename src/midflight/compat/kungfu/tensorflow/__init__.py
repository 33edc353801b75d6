"""`kungfu.tensorflow`: the elastic hook, for Keras 3, whatever it computes with.

KungFu's operations for graphs and sessions are not here; docs/coming-from-kungfu.md says what to
use instead.
"""

from typing import NoReturn

from midflight.compat.aliasing import missing


def __getattr__(name: str) -> NoReturn:
    missing("kungfu.tensorflow", name)
