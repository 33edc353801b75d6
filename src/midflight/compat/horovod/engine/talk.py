"""Rank 0 and the other members of one world, connected: frames of requests and responses.

Both sides prove that they know the job's secret, as on every wire of Midflight; frames are JSON,
bounded, and decoded strictly. Connections are exempted from the runtime's collecting of a group's
sockets: they belong to no group and end with the world.
"""

import contextlib
import selectors
import socket
import struct
import time
from queue import SimpleQueue
from threading import Thread

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
MOST_STRANGERS = 64  # at a time, beside the members
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
    backlog = group.size + MOST_STRANGERS
    with (
        socket.create_server((address, 0), family=family, backlog=backlog) as listener,
        Entrance(group, secret, tls) as entrance,
    ):
        group.gather([listener.getsockname()[1]])
        deadline = time.monotonic() + HANDSHAKE
        try:
            while len(entrance.lines) < group.size - 1:
                entrance.wait(listener, deadline)
        except (OSError, ConnectionLost) as error:
            _close(entrance.lines)
            raise WorldChanged(f"a member did not come: {error}") from None
    return entrance.lines


class Entrance:
    """Lets the other ranks in. Each handshake has a thread: one who says nothing delays nobody.

    Whoever is no member of the world is a stranger: nonsense, a hang-up and silence are no reason
    to give the world up. At the cap the stranger who has waited longest has to go.
    """

    def __init__(self, group: Group, secret: bytes, tls: bool) -> None:
        self.lines: dict[int, Line] = {}
        self._group = group
        self._secret = secret
        self._tls = tls
        self._strangers: dict[socket.socket, None] = {}  # in the order in which they came
        self._arrived: SimpleQueue[tuple[socket.socket, int, Line | None]] = SimpleQueue()
        self._here, self._there = socket.socketpair()  # a byte for each of those

    def __enter__(self) -> "Entrance":
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever is not in now is not waited for."""
        known = set(self.lines)
        for sock in self._strangers:
            _hang_up(sock)
        while self._strangers:
            self._take()
        _close({rank: self.lines.pop(rank) for rank in self.lines.keys() - known})
        self._here.close()
        self._there.close()

    def wait(self, listener: socket.socket, deadline: float) -> None:
        """Until somebody has come, or a handshake is over."""
        if self._group.is_cut:
            raise ConnectionLost("the group was cut")
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            for sock in (listener, self._here):
                selector.register(sock, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(max(0.0, left))]
        if not ready:
            raise TimeoutError("timed out")
        if self._here in ready:
            self._take()
        if listener in ready:
            self._admit(listener)

    def _admit(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        exempt(sock)
        if len(self._strangers) >= self._group.size + MOST_STRANGERS:
            _hang_up(next(iter(self._strangers)))
            self._take()
        self._strangers[sock] = None
        Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        rank, line = 0, None
        try:
            sock.settimeout(HANDSHAKE)
            tune(sock)
            wire, hello = accept_blocking(sock, self._secret, tls=self._tls)
            rank = self._group.world.rank(hello.name)
            sock.settimeout(SEND_SECONDS)
            line = Line(wire, Asked)
        except (OSError, ConnectionLost, ProtocolError, HandshakeRefused, KeyError):
            pass  # not one of us
        finally:
            self._arrived.put((sock, rank, line))
            self._there.send(b".")

    def _take(self) -> None:
        """The outcome of a handshake; waits for one."""
        sock, rank, line = self._arrived.get()
        self._here.recv(1)
        del self._strangers[sock]
        if line is None or rank in self.lines or rank == self._group.rank:
            close_exempt(sock)
        else:
            self.lines[rank] = line


def _close(lines: dict[int, Line]) -> None:
    for line in lines.values():
        line.close()


def _hang_up(sock: socket.socket) -> None:
    """Whoever reads from it or writes to it now stops at once."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


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
