"""Other Pythons of this machine, which stand for those in images."""

import os
import shutil
import subprocess
from pathlib import Path


def find_python(version: str) -> Path | None:
    """One that works; a shim of pyenv may be there without its version."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [Path(path) for path in (shutil.which(f"python{version}"),) if path]
    found += sorted(root.glob(f"versions/{version}.*/bin/python3"))
    return next(filter(_works, found), None)


def _works(path: Path) -> bool:
    return subprocess.run([path, "-c", ""], capture_output=True, timeout=30).returncode == 0
