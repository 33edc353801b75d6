"""A container's root, made of this machine's: what it sees as its image, and keeps to itself.

The root is an overlay, so that a container reads this machine's files and whatever it writes is its
own and gone with it, mount points that do not exist here included. Volumes are bind mounts on top.
/dev is small and private, /proc is that of the container's own process ids.

It takes root, and the right to mount: `python -m tests.kubernetes.plane.sandbox` tries it. In a
user namespace the kernel refuses an overlay of the root, so that other users cannot have this.
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NEWNS = 0x00020000
_RDONLY, _REMOUNT, _BIND, _MOVE, _REC, _PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
_KERNEL = ("/proc", "/sys", "/dev")  # a container gets these apart from the rest
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Mount:
    """`source`, a file or folder of this machine, seen at `target` inside."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Room:
    """What a container has around it."""

    scratch: Path  # on the node's tmpfs: the root, and what is written to it
    hostname: str
    mounts: tuple[Mount, ...] = ()
    hidden: tuple[str, ...] = ()  # folders of this machine below which mounts are left out
    workdir: str = "/"  # made where it is missing
    read_only: bool = False


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode() or None)
    done = libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None)
    check(done, f"mount {source} at {target}")


def keep_mounts_to_oneself() -> None:
    check(libc.unshare(NEWNS), "unshare")
    mount("none", "/", flags=_REC | _PRIVATE)


def mount_scratch(folder: Path) -> None:
    """For a node, once its mounts are its own: a tmpfs that ends with it."""
    folder.mkdir(parents=True, exist_ok=True)
    mount("tmpfs", str(folder), "tmpfs", options="mode=0700")


def move_in(room: Room) -> None:
    """Builds the root and makes it this process's, which is in its own namespaces already."""
    root = room.scratch / "root"
    _lay_over("/", root, room.scratch / "layers")
    hidden = (*_KERNEL, *room.hidden)
    for number, point in enumerate(_mount_points()):
        if point != "/" and not _under(point, hidden):
            _carry_over(point, root, room.scratch / f"layers-{number}")
    mount("/sys", f"{root}/sys", flags=_BIND | _REC)
    mount("proc", f"{root}/proc", "proc")
    _furnish_dev(root / "dev")
    for wanted in room.mounts:
        _bind(root, wanted)
    _inside(root, room.workdir).mkdir(parents=True, exist_ok=True)
    if room.read_only:
        mount("none", str(root), flags=_REMOUNT | _BIND | _RDONLY)
    os.chdir(root)
    mount(".", "/", flags=_MOVE)
    os.chroot(".")


def _lay_over(lower: str, target: Path, layers: Path) -> None:
    for folder in (target, layers / "upper", layers / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={lower},upperdir={layers}/upper,workdir={layers}/work"
    mount("overlay", str(target), "overlay", options=options)


def _carry_over(point: str, root: Path, layers: Path) -> None:
    """Another file system mounted here: laid over as the root is, or else only read."""
    target = root / point[1:]
    try:
        if not os.path.isdir(point):
            raise NotADirectoryError(point)
        _lay_over(point, target, layers)
    except OSError:
        if os.path.exists(point) and target.exists():
            mount(point, str(target), flags=_BIND)
            mount("none", str(target), flags=_REMOUNT | _BIND | _RDONLY)


def _furnish_dev(dev: Path) -> None:
    mount("tmpfs", str(dev), "tmpfs", options="mode=0755")
    for name in _DEVICES:
        (dev / name).touch()
        mount(f"/dev/{name}", str(dev / name), flags=_BIND)
    for name, target in _LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "pts").mkdir()
    mount("devpts", str(dev / "pts"), "devpts", options="newinstance,ptmxmode=0666,mode=0620")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "shm").mkdir()
    mount("tmpfs", str(dev / "shm"), "tmpfs", options="mode=1777")


def _bind(root: Path, wanted: Mount) -> None:
    target = _inside(root, wanted.target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if wanted.source.is_dir():
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.touch()
    mount(str(wanted.source), str(target), flags=_BIND | _REC)
    if wanted.read_only:
        mount("none", str(target), flags=_REMOUNT | _BIND | _RDONLY)


def _inside(root: Path, path: str) -> Path:
    """Where `path` is below `root`; links on the way, /var/run say, are followed within it."""
    at = "/"
    for part in Path(os.path.normpath(path)).parts[1:]:
        at = os.path.join(at, part)
        if (root / at[1:]).is_symlink():
            linked = os.path.join(os.path.dirname(at), os.readlink(root / at[1:]))
            at = "/" + str(_inside(root, linked).relative_to(root))
    return root / at[1:]


def _mount_points() -> list[str]:
    """Outer ones first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = {line.split()[4].encode().decode("unicode_escape") for line in lines}
    return sorted(points, key=lambda point: point.count("/"))


def _under(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _try() -> None:
    """Moves in once, for nothing; an error says what is missing."""
    keep_mounts_to_oneself()
    place = Path("/tmp")  # what is mounted over it here is seen by nobody else
    mount_scratch(place)
    move_in(Room(place / "room", "nobody", hidden=(str(place),)))


if __name__ == "__main__":
    _try()
