"""What a node with real containers is made of: containerd, runc, CNI plugins and a small userland.

They are packages of the machine's own distribution, fetched with apt-get and unpacked into a cache
folder beside the control plane's; nothing is installed, and no containerd that may run here is
touched. The kubelet comes with the control plane. What is missing is said in one line.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.plane import binaries
from tests.kubernetes.plane.binaries import Binaries, Missing

_PACKAGES = (
    "containerd",
    "runc",
    "libseccomp2",
    "containernetworking-plugins",
    "busybox-static",
)
_WANTED = (  # of some 150 MB
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "libseccomp.so.2",
    "bridge",
    "host-local",
    "loopback",
    "busybox",
)
_TOOLS = ("ip", "mount", "unshare")
_RIGHTS = "namespaces, mounts, bridges and control groups"
_TRY = (
    "mount -t tmpfs none /run && ip link add name try0 type veth peer name try1 "
    "&& ip link add name try2 type bridge"
)
_FETCHING = ("apt-get", "dpkg")
_WHAT = "a node with real containers"
_SECONDS = 300


@dataclass(frozen=True)
class Parts:
    folder: Path  # programs and plugins, all in one
    kubelet: Path
    pause: Path  # what holds a pod's namespaces open


def obtain(programs: Binaries) -> Parts:
    """Fetches 36 MB the first time."""
    if os.geteuid() != 0:
        raise Missing(f"{_WHAT} needs root")
    absent = [name for name in _TOOLS if shutil.which(name) is None]
    if absent:
        raise Missing(f"{_WHAT} needs {', '.join(absent)} on the PATH")
    if (refused := _refused_right()) is not None:
        raise Missing(f"{_WHAT} needs the right to make {_RIGHTS}: {refused}")
    kubelet = programs.folder / "kubelet"
    if not os.access(kubelet, os.X_OK):
        raise Missing(f"{_WHAT} needs a kubelet, and there is none in {programs.folder}")
    folder = _fetched()
    own = programs.folder / "pause"
    return Parts(folder, kubelet, own if own.exists() else folder / "busybox")


def _refused_right() -> str | None:
    """Tried in namespaces that are gone with the try."""
    spaces = ("--mount", "--propagation=private", "--pid", "--fork", "--net")
    tried = _run(["unshare", *spaces, "sh", "-c", _TRY], Path("/"))
    if tried.returncode != 0:
        return (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    hierarchies = [path for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir()]
    if not any(os.access(path, os.W_OK) for path in hierarchies):
        return "/sys/fs/cgroup cannot be written to"
    return None


def _fetched() -> Path:
    """The folder appears in one step, when everything is in it."""
    version = hashlib.sha256(repr((_PACKAGES, _WANTED)).encode()).hexdigest()[:16]
    folder = binaries.cache_folder().parent / f"containers-{version}"
    if folder.exists():
        return folder
    absent = [name for name in _FETCHING if shutil.which(name) is None]
    if absent:
        raise Missing(f"{_WHAT} needs {', '.join(absent)} to fetch {', '.join(_PACKAGES)} with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "containers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="containers-") as work:
                _fetch(Path(work)).rename(folder)
    return folder


def _fetch(work: Path) -> Path:
    tried = _run(["apt-get", "download", *_PACKAGES], work)
    if tried.returncode != 0:  # it knows no packages yet, or versions that are gone by now
        own = _own_lists(work)
        _run(["apt-get", *own, "update"], work)
        tried = _run(["apt-get", *own, "download", *_PACKAGES], work)
    if tried.returncode != 0:
        why = (tried.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise Missing(f"{_WHAT} needs {', '.join(_PACKAGES)}; apt-get download failed: {why}")
    for package in work.glob("*.deb"):
        _run(["dpkg", "-x", package.name, "unpacked"], work)
    out = work / "out"
    out.mkdir()
    for name in _WANTED:
        found = [path for path in (work / "unpacked").rglob(name) if _is_program(path)]
        if not found:
            raise Missing(f"{_WHAT} needs {name}, which is in none of {', '.join(_PACKAGES)}")
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


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise Missing(f"{_WHAT}: {command[0]} took more than {_SECONDS} s") from None
