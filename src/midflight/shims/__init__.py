"""Commands and packages under their old names, for processes that Midflight starts.

`bin` holds horovodrun, torchrun and the like, `python` the packages horovod and kungfu. Nothing is
installed under those names: they are found only where this module's variables were set. A job's own
commands stay in front of them. `MIDFLIGHT_PYTHON` is the interpreter that runs the commands: the
one of this installation, whatever `python` means where they are called.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).resolve().parent
BIN, PYTHON = str(_HERE / "bin"), str(_HERE / "python")
INTERPRETER = "MIDFLIGHT_PYTHON"
JOB_DIR = "MIDFLIGHT_JOB_DIR"


def environment(environ: Mapping[str, str], python: str = sys.executable) -> dict[str, str]:
    """PATH and PYTHONPATH with the shims in front, and what the shims need. May be repeated."""
    own = os.path.join(environ[JOB_DIR], "bin") if environ.get(JOB_DIR) else None
    return {
        "PATH": _in_front(BIN, environ.get("PATH") or os.defpath, own),
        "PYTHONPATH": _in_front(PYTHON, environ.get("PYTHONPATH", "")),
        INTERPRETER: python,
    }


def _in_front(folder: str, path: str, first: str | None = None) -> str:
    """`first` is what stays before the folder, if the path has it."""
    parts = [part for part in path.split(os.pathsep) if part and part != folder]
    before = [part for part in parts[:1] if part == first]
    return os.pathsep.join([*before, folder, *parts[len(before) :]])
