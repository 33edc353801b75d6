"""Rank 0 and the other members of one world, connected: frames of requests and responses.

Both sides prove that they know the job's secret, as on every wire of Midflight; frames are JSON,
bounded, and decoded strictly. Connections are exempted from the runtime's collecting of a group's
sockets: they belong to no group and end with the world.
"""

import contextlib
import socket
import struct
import time

from midflight.compat.horovod.engine.requests import Asked, Told
from midflight.deadlines import HANDSHAKE
from midflight.errors import ConnectionLost, HandshakeRefused, ProtocolError, WorldChanged
from midflight.protocol import codec
from midflight.protocol.wire import (
    FRAME_LIMIT,
    SyncWire,
    accept_blocking,
    greet_blocking,
    tune,
)
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.sockets import close_exempt, exempt

SEND_SECONDS = 60.0  # a peer that does not read for so long is lost
_LENGTH = struct.Struct(">I")
_ROLE = "member"


class Line:
    """One connection; frames out at once, frames in as bytes arrive."""

    def __init__(self, wire: SyncWire, kind: type[Asked] | type[Told]) -> None:
        self._wire = wire
        self.sock = wire.sock
        self._kind = kind
        self._rest = b""

    def send(self, message: Asked | Told) -> None:
        body = codec.dumps(codec.encode(message))
        if len(body) > FRAME_LIMIT:
            raise ProtocolError(f"{len(body)} bytes of requests at once, {FRAME_LIMIT} at most")
        self._wire.send_frame(_LENGTH.pack(len(body)) + body)

    def receive(self) -> list[Asked | Told]:
        """What has arrived; blocks only if nothing has."""
        self._rest += self._wire.receive_bytes()
        frames: list[Asked | Told] = []
        while len(self._rest) >= _LENGTH.size:
            end = _LENGTH.size + self._wire.protection.rest_length(self._rest[: _LENGTH.size])
            if len(self._rest) < end:
                break
            sealed, self._rest = self._rest[_LENGTH.size : end], self._rest[end:]
            body = self._wire.protection.open(sealed)
            frames.append(codec.decode(self._kind, codec.loads(body)))
        return frames

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        close_exempt(self.sock)


def connect(group: Group, secret: bytes, *, tls: bool = False) -> dict[int, Line]:
    """Rank 0: a line to every other rank, encrypted with `tls`. The others: a line to rank 0.

    Raises WorldChanged when somebody does not come, or the group is cut.
    """
    lines: dict[int, Line] = {}
    if group.size > 1:
        lines = group.waits.call(lambda: _connect(group, secret, tls))
    return lines


def _connect(group: Group, secret: bytes, tls: bool) -> dict[int, Line]:
    if group.rank == 0:
        lines = _listen(group, secret, tls)
    else:
        ((port,), *_) = group.gather([0])
        lines = {0: _dial(group, port, secret)}
    if group.is_cut:  # nobody waits for them any longer
        _close(lines)
        raise WorldChanged("the group was cut")
    return lines


def _listen(group: Group, secret: bytes, tls: bool) -> dict[int, Line]:
    address = group.world.members[0].address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    lines: dict[int, Line] = {}
    with socket.create_server((address, 0), family=family, backlog=group.size) as listener:
        group.gather([listener.getsockname()[1]])
        deadline = time.monotonic() + HANDSHAKE
        try:
            while len(lines) < group.size - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                rank, line = _accept(listener, group, secret, tls)
                lines[rank] = line
        except (OSError, ProtocolError, ConnectionLost, KeyError) as error:
            _close(lines)
            raise WorldChanged(f"a member did not come: {error}") from None
    return lines


def _close(lines: dict[int, Line]) -> None:
    for line in lines.values():
        line.close()


def _accept(listener: socket.socket, group: Group, secret: bytes, tls: bool) -> tuple[int, Line]:
    while True:
        if group.is_cut:
            raise ConnectionLost("the group was cut")
        sock, _ = listener.accept()
        exempt(sock)
        sock.settimeout(HANDSHAKE)
        tune(sock)
        try:
            wire, hello = accept_blocking(sock, secret, tls=tls)
            rank = group.world.rank(hello.name)
        except (HandshakeRefused, KeyError):  # not one of us: go on listening
            close_exempt(sock)
            continue
        sock.settimeout(SEND_SECONDS)
        return rank, Line(wire, Asked)


def _dial(group: Group, port: int, secret: bytes) -> Line:
    own = group.world.members[group.rank].name
    try:
        address = (group.world.members[0].address, port)
        sock = socket.create_connection(address, timeout=HANDSHAKE)
        exempt(sock)
        tune(sock)
        wire = greet_blocking(sock, _ROLE, own, secret)
    except (OSError, ProtocolError, ConnectionLost) as error:
        raise WorldChanged(f"rank 0 could not be reached: {error}") from None
    sock.settimeout(SEND_SECONDS)
    return Line(wire, Told)
