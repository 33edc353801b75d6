"""Commands and packages under their old names, for processes that Midflight starts.

`bin` holds horovodrun, torchrun and the like, `python` the packages horovod and kungfu. Nothing is
installed under those names: they are found only where this module's variables were set.
"""

import os
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).resolve().parent
BIN, PYTHON = str(_HERE / "bin"), str(_HERE / "python")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """PATH and PYTHONPATH with the shims in front."""
    return {
        "PATH": _in_front(BIN, environ.get("PATH", os.defpath)),
        "PYTHONPATH": _in_front(PYTHON, environ.get("PYTHONPATH", "")),
    }


def _in_front(folder: str, path: str) -> str:
    others = [part for part in path.split(os.pathsep) if part and part != folder]
    return os.pathsep.join([folder, *others])
