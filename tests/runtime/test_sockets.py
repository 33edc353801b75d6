"""Which sockets are a group's: those of its own, and none that a script opens meanwhile."""

import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from midflight.runtime.group.process_group import Group
from midflight.runtime.group.sockets import endpoints
from tests.runtime.keys import Keys, world

SECONDS = 30.0
HERE = "127.0.0.1"


class BusyScript(Keys):
    """Members' keys; whenever somebody asks for some, the script opens a connection of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.listener = socket.create_server((HERE, 0))
        self.opened: list[socket.socket] = []

    def want_keys(self, *wanted: object) -> list[str]:
        self.opened.append(socket.create_connection(self.listener.getsockname(), SECONDS))
        self.opened.append(self.listener.accept()[0])
        return list(super().want_keys(*wanted))  # type: ignore[arg-type]

    def close(self) -> None:
        for sock in (self.listener, *self.opened):
            sock.close()


@pytest.fixture
def script() -> Iterator[BusyScript]:
    busy = BusyScript()
    yield busy
    busy.close()


def test_a_cut_leaves_connections_alone_that_a_script_opened_while_the_group_was_built(
    script: BusyScript,
) -> None:
    groups = [Group(world(2), name, "gloo") for name in ("m0", "m1")]
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(group.connect, script) for group in groups]:
            done.result(SECONDS)
        waiting = threads.submit(groups[0].control.barrier().wait)
        for group in groups:
            group.cut()
        assert isinstance(waiting.exception(SECONDS), RuntimeError)  # its own sockets are cut
    assert len(script.opened) >= 2
    for one, other in zip(script.opened[::2], script.opened[1::2], strict=True):
        one.sendall(b"still there")
        other.settimeout(SECONDS)
        assert other.recv(20) == b"still there"


def sockaddr(host: str, port: int) -> bytes:
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    flow = bytes(4) if kind == socket.AF_INET6 else b""
    family = int(kind).to_bytes(2, sys.byteorder)
    return family + struct.pack(">H", port) + flow + socket.inet_pton(kind, host) + bytes(20)


def test_endpoints_are_found_in_what_gloo_tells_the_others() -> None:
    keys = [
        b"\x02\x00name" + sockaddr("10.0.0.7", 4711) + sockaddr("10.0.0.7", 4712),
        b"rubbish" + sockaddr("fd00::2", 80),
        sockaddr("10.9.9.9", 1),  # of a host that is none of ours
        b"",
    ]
    found = endpoints(["10.0.0.7", "fd00::2", "a-name"], keys)
    assert found == {("10.0.0.7", 4711), ("10.0.0.7", 4712), ("fd00::2", 80)}
