"""How fast a script trains that is to be disturbed: it must not come to its end before that."""

import time
from pathlib import Path

BRISK = 60  # steps; from then on it lingers


def keep_pace(folder: Path, step: int) -> None:
    """Take a while, unless the file `hurry` is there."""
    if not (folder / "hurry").exists():
        time.sleep(0.05 if step < BRISK else 1.0)
