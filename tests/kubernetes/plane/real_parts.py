"""What a node with real containers is made of: containerd, runc, CNI plugins and a small userland.

They come from packages of the machine's own distribution; no containerd that may run here is
touched. The kubelet comes with the control plane. What is missing is said in one line.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests import packages
from tests.kubernetes.plane.binaries import Binaries
from tests.packages import Missing, Wanted

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
_WHAT = "a node with real containers"


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
    folder = packages.fetched(Wanted(_WHAT, "containers", _PACKAGES, _WANTED))
    own = programs.folder / "pause"
    return Parts(folder, kubelet, own if own.exists() else folder / "busybox")


def _refused_right() -> str | None:
    """Tried in namespaces that are gone with the try."""
    spaces = ("--mount", "--propagation=private", "--pid", "--fork", "--net")
    command = ["unshare", *spaces, "sh", "-c", _TRY]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        return (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    hierarchies = [path for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir()]
    if not any(os.access(path, os.W_OK) for path in hierarchies):
        return "/sys/fs/cgroup cannot be written to"
    return None
