"""The programs of a control plane: found, or else built once from Debian's source package.

They are looked for where KUBEBUILDER_ASSETS says, then in a cache folder that is named after the
build script, and built into that if need be. Where they can neither be found nor built, `Missing`
says in one line what that takes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests import packages
from tests.packages import Missing
from tests.store.etcd_binary import find_etcd

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_SCRIPT = Path(__file__).with_name("build.sh")
_WORK = "work-"  # 1.5 GB, removed afterwards
_NEEDED = ("apt-get", "dpkg", "tar", "bash")
_WISH = "or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and its companions"


@dataclass(frozen=True)
class Binaries:
    folder: Path
    etcd: Path
    kubectl: Path | None  # None: there is none, and tests of kubectl habits are skipped


def obtain() -> Binaries:
    """May take minutes the first time, and says so on standard error."""
    etcd = find_etcd()
    if shutil.which("openssl") is None:
        raise Missing("no openssl on the PATH, which makes the certificates of the control plane")
    folder = _given() or _built()
    return Binaries(folder, etcd, _kubectl(folder))


def cache_folder() -> Path:
    version = hashlib.sha256(_SCRIPT.read_bytes()).hexdigest()[:16]
    return packages.cache() / "kubernetes" / version


def _given() -> Path | None:
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return None
    absent = [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]
    if absent:
        raise Missing(f"KUBEBUILDER_ASSETS is {named}, which lacks {', '.join(absent)}")
    return Path(named)


def _kubectl(folder: Path) -> Path | None:
    found = shutil.which("kubectl") or shutil.which("kubectl", path=str(folder))
    return Path(found) if found else None


def _built() -> Path:
    """The folder appears in one step, when everything is in it."""
    folder = cache_folder()
    if folder.exists():
        return folder
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    if absent:
        raise Missing(f"no Kubernetes: install {', '.join(absent)} for it to be built, {_WISH}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        _say("waiting for the control plane to be built by somebody else", unless=_locked(lock))
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    _say(f"building the Kubernetes control plane into {folder}: once, 5 minutes on 2 cores")
    for left in folder.parent.glob(f"{_WORK}*"):  # by a build that was killed: this is the only one
        _remove(left)
    work = Path(tempfile.mkdtemp(prefix=_WORK, dir=folder.parent))
    log = folder.with_suffix(".log")
    try:
        command = ["bash", str(_SCRIPT), str(work / "out"), str(work / "work")]
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command, stdin=nothing, stdout=pipe, stderr=output, text=True
            ) as build,
        ):
            for line in build.stdout or ():
                _say(line.rstrip())
        if build.returncode != 0:
            raise Missing(f"no Kubernetes: its build failed, see {log}; mend that, {_WISH}")
        (work / "out").rename(folder)
    finally:
        _remove(work)


def _locked(lock: IO[str]) -> bool:
    """Takes the lock if nobody has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path) -> None:
    """Go leaves folders that may not be written to."""
    for place, folders, _ in os.walk(folder):
        for name in folders:
            if not (path := Path(place, name)).is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _say(text: str, unless: bool = False) -> None:
    if not unless:
        print(text, file=sys.stderr, flush=True)
