"""Addresses and sockets: which endpoint is this machine, what this node is reached at, and where
it listens.

What is meant for this machine alone is bound to the loopback. A host name is bound on all
interfaces, because the address it has here is often not the one that others see.
"""

import functools
import ipaddress
import socket

from midflight.errors import UsageError
from midflight.run.addresses import LOOPBACK, address_towards, is_local, join_address

BACKLOG = 2048


@functools.cache  # names are asked for, and that may take its time
def is_this_machine(host: str) -> bool:
    """By name, by address, or because the name has one of this machine's addresses."""
    if is_local(host):
        return True
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return False
    return any(is_local(str(info[4][0])) for info in found)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_address(endpoint: str, given: str | None) -> str:
    """What the other nodes reach this one at."""
    if given:
        return given
    if is_loopback(endpoint):
        return LOOPBACK
    found = address_towards(endpoint)
    # A machine may know its own name by a loopback address; nobody else does.
    return address_towards(None) if is_loopback(found) else found


def listen(host: str, port: int) -> socket.socket:
    """OSError if that is not possible, above all because somebody listens there already."""
    family, where = _bind_address(host)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((where, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_anywhere(host: str) -> socket.socket:
    try:
        return listen(host, 0)
    except OSError as error:
        raise UsageError(
            f"cannot listen at {host}: {error.strerror or error}; name an address of this "
            "machine with --local-addr"
        ) from None


def address_of(listener: socket.socket, host: str) -> str:
    return join_address(host, int(listener.getsockname()[1]))


def _bind_address(host: str) -> tuple[socket.AddressFamily, str]:
    if host == "localhost":
        return socket.AF_INET, LOOPBACK
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return socket.AF_INET, ""
    family = socket.AF_INET6 if literal.version == 6 else socket.AF_INET
    return family, host
