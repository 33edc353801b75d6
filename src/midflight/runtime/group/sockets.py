"""Which sockets a process group opened, and how to make its blocked calls fail.

A collective that waits for somebody who has left does not end by itself, and a group's own
abort() closes nothing on gloo. So the sockets that appear while a group is built are remembered,
as duplicates; shutting those down makes every blocked call fail within milliseconds, also when the
peer is stopped or its host is gone. A script may open sockets to the same hosts at that moment.
The group's own are those that have an endpoint at one of their two ends: gloo listens at one port
of each member, and the members tell each other which, through the store.
"""

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Sequence

Endpoint = tuple[str, int]  # address and port at which a member's gloo listens


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


def endpoints(hosts: Iterable[str], keys: Iterable[bytes]) -> set[Endpoint]:
    """Where gloo listens, by the keys that it has put into the store: they hold a sockaddr each."""
    found = set()
    for host in set(hosts):
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            address = socket.inet_pton(kind, host)
        except OSError:
            continue  # a name
        gap = 4 if kind == socket.AF_INET6 else 0  # its flow label
        for key in keys:
            place = key.find(address)
            while place >= 0:
                port = key[place - gap - 2 : place - gap]
                family = key[place - gap - 4 : place - gap - 2]
                if int.from_bytes(family, sys.byteorder) == kind:
                    found.add((host, int.from_bytes(port, "big")))
                place = key.find(address, place + 1)
    return found


class SocketSet:
    """Duplicates of a group's sockets, for as long as the group lives."""

    def __init__(
        self, before: Iterable[int], hosts: Iterable[str], keys: Callable[[], Sequence[bytes]]
    ) -> None:
        """`keys`: what the members' gloo has put into the store so far."""
        self._before = set(before)
        self._hosts = set(hosts)
        self._keys = keys
        self._held: dict[int, socket.socket] = {}

    def collect(self) -> None:
        """Remember what has appeared since; may be called several times while building."""
        keys = self._keys()
        known: set[Endpoint] | None = endpoints(self._hosts, keys)
        if keys and not known:
            known = None  # a gloo whose keys are of another kind
        for inode, descriptor in open_sockets().items():
            if inode in self._before or inode in self._held or inode in _exempt:
                continue
            duplicate = _duplicate(descriptor)
            if duplicate is not None and self._ours(duplicate, known):
                self._held[inode] = duplicate
            elif duplicate is not None:
                duplicate.close()

    def _ours(self, sock: socket.socket, known: set[Endpoint] | None) -> bool:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        try:
            mine, theirs = sock.getsockname()[:2], sock.getpeername()[:2]
        except OSError:  # a listener, or still being connected to somebody
            return False
        if known is None:
            return theirs[0] in self._hosts
        return mine in known or theirs in known

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
