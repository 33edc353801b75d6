"""Horovod's API on Midflight's runtime. `import horovod` gives this package in processes that
Midflight started.

Nothing is loaded before it is used: `horovod.run` does without torch, `horovod.torch` without
TensorFlow.
"""

from typing import Any

from midflight.compat.aliasing import missing

__version__ = "0.28.1"  # the release whose API this is


def __getattr__(name: str) -> Any:
    if name == "run":
        from midflight.compat.horovod.runner import run

        return run
    missing("horovod", name)
