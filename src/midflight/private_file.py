"""Files with secrets: whoever else could read one knows it, and whoever else wrote it chose it.

So a file, and a link to it, has to be this user's or root's, and nobody else may read it. Where
root owns the file, as in a volume, the group is how it can be read at all. The links into `..data`
are Kubernetes' own: what is in such a volume has the mode that its pod asks for.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from midflight.errors import UsageError

_LARGEST = 1 << 20
_VOLUME = "..data/"
_MOST_LINKS = 40  # as many as Linux follows
_ROOT = 0


def read_private(path: Path, what: str, mend: str) -> bytes:
    """`what` it is, such as "token file"; `mend`: what to do if others have read it."""
    try:
        links = _links(path)
        in_volume = any(os.readlink(link).startswith(_VOLUME) for link in links)
        owned = [link.lstat() for link in links]
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not hold us up
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            _check(path, what, mend, [*owned, found], in_volume)
            return file.read(_LARGEST)
    except OSError as error:
        raise UsageError(f"cannot read the {what} {path}: {error.strerror}") from None


def _links(path: Path) -> list[Path]:
    """The way to the file itself: a launcher has a link to the one in a volume."""
    found: list[Path] = []
    while path.is_symlink() and len(found) < _MOST_LINKS:
        found.append(path)
        path = path.parent / os.readlink(path)
    return found


def check_folder(path: Path) -> None:
    """Whoever could put files there would decide what runs here."""
    try:
        found = path.stat()
    except OSError:
        return  # whoever makes it is looked at when it is there
    if (wrong := _stranger(found)) is not None:
        raise UsageError(f"{path} {wrong}: what is in it would decide what this user runs")
    if found.st_mode & stat.S_IWOTH:
        raise UsageError(f"everybody can put files into {path}: `chmod o-w` it")


def _check(
    path: Path, what: str, mend: str, seen: Sequence[os.stat_result], in_volume: bool
) -> None:
    *_, found = seen
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"the {what} {path} is no file")
    if wrong := next(filter(None, map(_stranger, seen)), None):
        raise UsageError(f"the {what} {path} {wrong}: copy it, and use the copy")
    forbidden = 0o077 if found.st_uid == os.geteuid() else 0o037
    if not in_volume and found.st_mode & forbidden:
        mode = stat.S_IMODE(found.st_mode)
        raise UsageError(
            f"the {what} {path} can be read by others (mode {mode:o}): `chmod 600` it if nobody "
            f"has, else {mend}"
        )


def _stranger(found: os.stat_result) -> str | None:
    if found.st_uid in (os.geteuid(), _ROOT):
        return None
    return f"belongs to another user (uid {found.st_uid}, this is {os.geteuid()})"
