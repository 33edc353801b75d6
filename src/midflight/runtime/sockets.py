"""Which sockets a process group opened, and how to make its blocked calls fail.

A collective that waits for somebody who has left does not end by itself, and a group's own
abort() closes nothing on gloo. So the sockets that appear while a group is built are remembered,
as duplicates; shutting those down makes every blocked call fail within milliseconds, also when the
peer is stopped or its host is gone. Only connections to the world's own addresses are touched.
"""

import os
import socket
import stat
from collections.abc import Iterable


def open_sockets() -> dict[int, int]:
    """Inode to descriptor of every socket of this process."""
    found = {}
    for entry in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(entry))
        except OSError:
            continue  # the descriptor of the listing itself, or closed meanwhile
        if stat.S_ISSOCK(status.st_mode):
            found[status.st_ino] = int(entry)
    return found


_exempt: set[int] = set()  # inodes of connections to members that belong to no group


def exempt(sock: socket.socket) -> None:
    """This connection is none of a group's, though it may be made while one is built."""
    _exempt.add(os.fstat(sock.fileno()).st_ino)


def close_exempt(sock: socket.socket) -> None:
    """Close it; its inode may be anybody's afterwards."""
    if sock.fileno() >= 0:
        _exempt.discard(os.fstat(sock.fileno()).st_ino)
        sock.close()


class SocketSet:
    """Duplicates of a group's sockets, for as long as the group lives."""

    def __init__(self, before: Iterable[int], hosts: Iterable[str]) -> None:
        self._before = set(before)
        self._hosts = set(hosts)
        self._held: dict[int, socket.socket] = {}

    def collect(self) -> None:
        """Remember what has appeared since; may be called several times while building."""
        for inode, descriptor in open_sockets().items():
            if inode in self._before or inode in self._held or inode in _exempt:
                continue
            duplicate = _duplicate(descriptor)
            if duplicate is not None and self._ours(duplicate):
                self._held[inode] = duplicate
            elif duplicate is not None:
                duplicate.close()

    def _ours(self, sock: socket.socket) -> bool:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            return str(sock.getpeername()[0]) in self._hosts
        except OSError:  # a listener, or still being connected to somebody
            return not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def cut(self) -> None:
        for sock in tuple(self._held.values()):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the other side was quicker

    def close(self) -> None:
        for sock in self._held.values():
            sock.close()
        self._held.clear()


def _duplicate(descriptor: int) -> socket.socket | None:
    try:
        return socket.socket(fileno=os.dup(descriptor))
    except OSError:
        return None
