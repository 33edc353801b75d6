"""What a process that `horovod.run` has started does: call the function, write the result down."""

import os
import sys
from pathlib import Path
from typing import Any

from midflight.compat.horovod.runner import function_files

_FRAMEWORKS = ("torch", "tensorflow", "keras")


def main(argv: list[str]) -> int:
    folder = Path(argv[0])
    func, args, kwargs = function_files.receive(folder)
    result = func(*args, **kwargs)
    function_files.give_back(folder, os.environ.get("MIDFLIGHT_MEMBER", "m0"), rank_now(), result)
    return 0


def rank_now() -> int:
    """As the library says, if the function has used it; otherwise the rank of the start."""
    for name in _FRAMEWORKS:
        module: Any = sys.modules.get(f"midflight.compat.horovod.{name}")
        if module is not None and module.is_initialized():
            return int(module.rank())
    return int(os.environ.get("HOROVOD_RANK", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
