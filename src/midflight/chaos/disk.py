"""Filling the disk of a folder, so that it is free again whatever happens.

The space is held by a file without a name: when its holder closes it, or ends in any way, SIGKILL
included, the space is free. Only a small disk is filled: the limit is compared with what is free
before the first byte, since on a large one others would suffer.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

_PIECES = (1 << 20, 1 << 12)


def objection(folder: Path, limit: int) -> str:
    """Why the disk of the folder is not filled; "" if it may be."""
    free = _free(folder)
    if free <= limit:
        return ""
    return (
        f"{folder} is on a disk with {_mib(free)} free, and more than --fill-limit {_mib(limit)} "
        "is never written; put MIDFLIGHT_HOME on a small disk, such as a tmpfs with size="
    )


@contextlib.contextmanager
def filled(folder: Path, limit: int) -> Iterator[str]:
    """Inside, the disk is full; says how much that took."""
    descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        written = _fill(descriptor, limit)
        yield f"the disk was full, with {_mib(written)} of it taken"
    finally:
        os.close(descriptor)


def _fill(descriptor: int, limit: int) -> int:
    written = 0
    for piece in _PIECES:
        while written + piece <= limit:
            try:
                os.posix_fallocate(descriptor, written, piece)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
            written += piece
    return written


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bfree * found.f_frsize


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
