"""`import horovod` in a process that Midflight started."""

import sys

try:
    from midflight.compat.aliasing import alias
except ModuleNotFoundError as error:
    raise ImportError(
        f"{sys.executable} finds Midflight's horovod, but not Midflight; install it there: "
        "pip install midflight"
    ) from error

alias("horovod", "midflight.compat.horovod")
