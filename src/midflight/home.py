"""Where everything of one user is kept: `$MIDFLIGHT_HOME`, or `~/.midflight`; for that user alone.

Apart, because the command line asks for it first and should load nothing else for that.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from midflight.errors import Refused


def home(env: Mapping[str, str]) -> Path:
    return Path(env.get("MIDFLIGHT_HOME") or Path(env.get("HOME", "/")) / ".midflight")


def make_private(folder: Path) -> None:
    """For this user alone, also if it was there before; another user's is refused."""
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    check_owner(folder, found)
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)


def check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise Refused(
            f"{path} belongs to another user (uid {found.st_uid}, this is {os.geteuid()});"
            " choose another MIDFLIGHT_HOME"
        )
