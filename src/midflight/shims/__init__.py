"""Commands and packages under their old names, for processes that Midflight starts.

`bin` holds horovodrun, torchrun and the like, `python` the packages horovod and kungfu. Nothing is
installed under those names: they are found only where this module's variables were set. A job's own
commands stay in front of them. `MIDFLIGHT_PYTHON` is the interpreter that runs the commands: the
one of this installation, whatever `python` means where they are called.

Scripts of these systems are written for Keras 2. Where `python` has it, as the package tf-keras, it
is what `tf.keras` means, unless the user has decided that.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).resolve().parent
BIN, PYTHON = str(_HERE / "bin"), str(_HERE / "python")
INTERPRETER = "MIDFLIGHT_PYTHON"
JOB_DIR = "MIDFLIGHT_JOB_DIR"
KERAS = "TF_USE_LEGACY_KERAS"  # TensorFlow's own variable


def environment(environ: Mapping[str, str], python: str = sys.executable) -> dict[str, str]:
    """PATH and PYTHONPATH with the shims in front, and what the shims need. May be repeated."""
    own = os.path.join(environ[JOB_DIR], "bin") if environ.get(JOB_DIR) else None
    path = environ.get("PATH") or os.defpath
    found = {
        "PATH": _in_front(BIN, path, own),
        "PYTHONPATH": _in_front(PYTHON, environ.get("PYTHONPATH", "")),
        INTERPRETER: python,
    }
    if KERAS not in environ and _has_keras_2(shutil.which("python", path=path) or python):
        found[KERAS] = "1"
    return found


def _has_keras_2(python: str) -> bool:
    """Without asking it, which would take longer than all the rest."""
    lib = Path(python).parent.parent / "lib"
    return any(lib.glob("python3*/*-packages/tf_keras/__init__.py"))


def _in_front(folder: str, path: str, first: str | None = None) -> str:
    """`first` is what stays before the folder, if the path has it."""
    parts = [part for part in path.split(os.pathsep) if part and part != folder]
    before = [part for part in parts[:1] if part == first]
    return os.pathsep.join([*before, folder, *parts[len(before) :]])
