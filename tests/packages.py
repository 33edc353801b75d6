"""Programs from packages of the machine's own distribution, fetched once into a cache folder.

apt-get downloads them and dpkg unpacks them; nothing is installed, and nothing that runs here is
touched. What is missing is said in one line.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_FETCHING = ("apt-get", "dpkg")
_SECONDS = 300


class Missing(Exception):
    """What it takes, in one line."""


@dataclass(frozen=True)
class Wanted:
    what: str  # it is for, as a message begins
    folder: str  # in the cache
    packages: tuple[str, ...]
    programs: tuple[str, ...]  # or libraries


def cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "midflight"


def fetched(wanted: Wanted) -> Path:
    """The folder with the programs; it appears in one step, when everything is in it."""
    version = hashlib.sha256(repr((wanted.packages, wanted.programs)).encode()).hexdigest()[:16]
    folder = cache() / f"{wanted.folder}-{version}"
    if folder.exists():
        return folder
    absent = [name for name in _FETCHING if shutil.which(name) is None]
    if absent:
        raise Missing(
            f"{wanted.what} needs {', '.join(absent)} to fetch {', '.join(wanted.packages)} with"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{wanted.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            prefix = f"{wanted.folder}-"
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as work:
                _fetch(wanted, Path(work)).rename(folder)
    return folder


def _fetch(wanted: Wanted, work: Path) -> Path:
    packages = ", ".join(wanted.packages)
    tried = _run(wanted, ["apt-get", "download", *wanted.packages], work)
    if tried.returncode != 0:  # it knows no packages yet, or versions that are gone by now
        own = _own_lists(work)
        _run(wanted, ["apt-get", *own, "update"], work)
        tried = _run(wanted, ["apt-get", *own, "download", *wanted.packages], work)
    if tried.returncode != 0:
        why = (tried.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise Missing(f"{wanted.what} needs {packages}; apt-get download failed: {why}")
    for package in work.glob("*.deb"):
        _run(wanted, ["dpkg", "-x", package.name, "unpacked"], work)
    out = work / "out"
    out.mkdir()
    for name in wanted.programs:
        found = [path for path in (work / "unpacked").rglob(name) if _is_program(path)]
        if not found:
            raise Missing(f"{wanted.what} needs {name}, which is in none of {packages}")
        shutil.copy(found[0], out / name)
    return out


def _is_program(path: Path) -> bool:
    """Or a library; scripts and settings bear the same names."""
    return path.is_file() and path.read_bytes()[:4] == b"\x7fELF"


def _own_lists(work: Path) -> list[str]:
    """apt-get, with what it knows of the mirrors kept in a folder of its own."""
    (work / "lists" / "partial").mkdir(parents=True)
    (work / "cache" / "archives" / "partial").mkdir(parents=True)
    places = {"Dir::State::lists": work / "lists", "Dir::Cache": work / "cache"}
    words = [f"-o{name}={place}" for name, place in places.items()]
    return [*words, "-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1"]


def _run(wanted: Wanted, command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{wanted.what}: {command[0]} took more than {_SECONDS} s") from None
