"""Which hosts are this machine, and under which addresses its processes are reached.

While every host is this machine nothing listens outside of it. As soon as the coordinator listens
on more than the loopback, members here are announced with an address that others can reach too.
"""

import contextlib
import ipaddress
import socket
from dataclasses import dataclass

from midflight.errors import ProtocolError, UsageError
from midflight.protocol.wire import split_address

LOOPBACK = "127.0.0.1"
_WILDCARDS = {"0.0.0.0": LOOPBACK, "::": "::1"}


@dataclass(frozen=True)
class Reach:
    """How the coordinator is reached."""

    here: str  # HOST:PORT, from this machine
    port: int
    outer: str | None  # this machine's address as others see it; None: it listens on loopback only

    @property
    def there(self) -> str:
        return join_address(self.outer or LOOPBACK, self.port)


def reach(address: str, other: str | None) -> Reach:
    """`address` is where the coordinator listens, `other` a host that will dial it, if known."""
    host, port = split_address(address)
    here = join_address(_WILDCARDS.get(host, host), port)
    if host in _WILDCARDS:
        return Reach(here, port, address_towards(other))
    return Reach(here, port, None if _is_loopback(host) else host)


def is_local(host: str) -> bool:
    if host == "localhost" or host in _own_names():
        return True
    address = _as_address(host)
    return address is not None and (address.is_loopback or _is_own(address))


def member_address(host: str, outer: str | None) -> str:
    """Where the members of a local host are reached; `outer` if it must work from elsewhere."""
    literal = _as_address(host)
    if literal is not None and not (literal.is_loopback and outer):
        return host
    if outer:
        return outer
    if host == "localhost":
        return LOOPBACK
    try:
        return socket.gethostbyname(host)
    except OSError:
        return LOOPBACK


def address_towards(other: str | None) -> str:
    """The address of this machine on the way to `other`, or on the way out. Nothing is sent."""
    for target in (other, "192.0.2.1"):  # the second is an address that is nobody's, for ever
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            if target is not None:
                sock.connect((target, 9))
                return str(sock.getsockname()[0])
    return socket.gethostname()


def check_listen(text: str) -> str:
    """HOST:PORT, where port 0 means any; UsageError otherwise."""
    host, _, port = text.rpartition(":")
    any_port = port.isdecimal() and int(port) == 0
    try:
        split_address(f"{host}:1" if any_port else text)
    except ProtocolError:
        raise UsageError(f"--listen wants HOST:PORT (port 0 for any), got {text!r}") from None
    return f"{host.removeprefix('[').removesuffix(']')}:{port}"


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_names() -> set[str]:
    name = socket.gethostname()
    return {name, name.partition(".")[0]}


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _as_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Only an address of this machine can be bound to."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((str(address), 0))
    except OSError:
        return False
    return True
