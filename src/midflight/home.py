"""Where everything of one user is kept: `$MIDFLIGHT_HOME`, or `~/.midflight`.

Apart, because the command line asks for it first and should load nothing else for that.
"""

from collections.abc import Mapping
from pathlib import Path


def home(env: Mapping[str, str]) -> Path:
    return Path(env.get("MIDFLIGHT_HOME") or Path(env.get("HOME", "/")) / ".midflight")
