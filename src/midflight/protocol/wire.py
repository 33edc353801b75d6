"""Frames on a socket: four bytes of length, JSON, and after the handshake a MAC of 16 bytes.

What the handshake proves and what the MAC protects is in `handshake`. Before it a frame may have
4 KiB; afterwards 4 MiB, and a large one travels compressed: a world of 1,000 members is told to
each of them, and has much that is said again and again. The listening side decides whether all that
follows its first frame goes through a TLS session (`tunnel`). There is an asyncio form for the
processes that serve many peers, and a blocking one for the thread inside a training process.
"""

import asyncio
import secrets
import socket
import struct
import zlib

from midflight import async_timeout
from midflight.deadlines import HANDSHAKE
from midflight.errors import (
    ConnectionLost,
    FrameForged,
    HandshakeRefused,
    ProtocolError,
    Unreachable,
)
from midflight.protocol import codec
from midflight.protocol.handshake import (
    COORDINATOR,
    DIALLER,
    TAG_SIZE,
    VERSION,
    FrameMac,
    Session,
    accepted,
    answer_challenge,
    check_challenge,
    check_hello,
    check_welcome,
)
from midflight.protocol.messages import REGISTRY, Challenge, Hello, Refused
from midflight.protocol.tunnel import Tunnel

FRAME_LIMIT = 4 << 20
HANDSHAKE_LIMIT = 4 << 10
COMPRESS_FROM = 4 << 10  # bytes; no JSON begins like a compressed frame
_CHUNK = 1 << 16
_LENGTH = struct.Struct(">I")
_COMPRESSED = b"\x78"  # the first byte of zlib's format


def encode_frame(message: object) -> bytes:
    body = codec.dumps({"type": type(message).__name__, "body": message})
    if len(body) > FRAME_LIMIT:
        raise ProtocolError(
            f"{type(message).__name__} has {len(body)} bytes, more than a frame's {FRAME_LIMIT}"
        )
    if len(body) >= COMPRESS_FROM:
        body = zlib.compress(body)
    return _LENGTH.pack(len(body)) + body


def _expand(body: bytes) -> bytes:
    if body[:1] != _COMPRESSED:
        return body
    expanding = zlib.decompressobj()
    try:
        whole = expanding.decompress(body, FRAME_LIMIT)
    except zlib.error as error:
        raise ProtocolError(
            f"a compressed frame of {len(body)} bytes is damaged: {error}"
        ) from None
    if not expanding.eof or expanding.unused_data:
        raise ProtocolError(f"a compressed frame of {len(body)} bytes is not whole, or too large")
    return whole


def decode_body(body: bytes) -> object:
    frame = codec.loads(body)
    if not isinstance(frame, dict) or frame.keys() != {"type", "body"}:
        raise ProtocolError(f"wanted a frame with a type and a body, got {body[:40]!r}")
    kind = REGISTRY.get(frame["type"]) if isinstance(frame["type"], str) else None
    if kind is None:
        raise ProtocolError(f"unknown message type {frame['type']!r:.60}")
    return codec.decode(kind, frame["body"])


def body_length(head: bytes, limit: int) -> int:
    (length,) = _LENGTH.unpack(head)
    if length > limit:
        raise ProtocolError(f"a frame of {length} bytes was announced, more than {limit}")
    return int(length)


def new_challenge(*, tls: bool = False) -> Challenge:
    return Challenge(VERSION, _new_nonce(), tls)


def _greeting(role: str, name: str, run: str = "") -> Hello:
    return Hello(VERSION, role, name, _new_nonce(), proof="", run=run)


def _new_nonce() -> str:
    return secrets.token_hex(16)


class Protection:
    """The frames of one connection: small and bare during the handshake, with a MAC after it."""

    def __init__(self) -> None:
        self.limit = HANDSHAKE_LIMIT
        self.tag_size = 0
        self._sent: FrameMac | None = None
        self._received: FrameMac | None = None

    def start(self, session: Session, secret: bytes, side: str) -> None:
        other = DIALLER if side == COORDINATOR else COORDINATOR
        self._sent = session.mac(secret, side)
        self._received = session.mac(secret, other)
        self.limit, self.tag_size = FRAME_LIMIT, TAG_SIZE

    def seal(self, frame: bytes) -> bytes:
        if self._sent is None:
            return frame
        return frame + self._sent.tag(memoryview(frame)[_LENGTH.size :])

    def open(self, sealed: bytes) -> bytes:
        """The body of a frame that came without its length; raises FrameForged."""
        if self._received is None:
            return sealed
        body = sealed[:-TAG_SIZE]
        self._received.check(body, sealed[-TAG_SIZE:])
        return _expand(body)

    def rest_length(self, head: bytes) -> int:
        """How much follows the length of a frame.

        No MAC covers a length until the whole frame is there: one that is too large was changed.
        """
        try:
            return body_length(head, self.limit) + self.tag_size
        except ProtocolError as error:
            if self._received is None:
                raise
            raise FrameForged(f"{error}: somebody on the way changed its length") from None


class AsyncWire:
    """One authenticated connection in an asyncio process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tunnel: Tunnel | None = None
        self.protection = Protection()
        sock = writer.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            tune(sock)

    @property
    def peer(self) -> str:
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "a local peer"

    @property
    def peer_host(self) -> str:
        return self.peer.rpartition(":")[0]

    @property
    def own_address(self) -> str:
        name = self._writer.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else "127.0.0.1"

    @property
    def is_encrypted(self) -> bool:
        return self._tunnel is not None

    async def encrypt(self, *, listens: bool) -> str:
        """From now on everything goes through a TLS session; its binding."""
        tunnel = Tunnel(listens=listens)
        while not tunnel.shake():
            self._writer.write(tunnel.unsent())
            tunnel.feed(await self._some())
        self._writer.write(tunnel.unsent())
        self._tunnel = tunnel
        return tunnel.binding

    async def _some(self) -> bytes:
        try:
            data = await self._reader.read(_CHUNK)
        except OSError as error:
            raise ConnectionLost(f"{self.peer} closed the connection") from error
        if not data:
            raise ConnectionLost(f"{self.peer} closed the connection")
        return data

    async def _exactly(self, count: int) -> bytes:
        if self._tunnel is None:
            return await self._reader.readexactly(count)
        parts = []
        while count:
            if part := self._tunnel.read(count):
                parts.append(part)
                count -= len(part)
            else:
                self._tunnel.feed(await self._some())
        return b"".join(parts)

    async def receive(self) -> object:
        return decode_body(await self.receive_body())

    async def receive_body(self) -> bytes:
        """A frame as it was sent, not decoded."""
        try:
            head = await self._exactly(_LENGTH.size)
            rest = await self._exactly(self.protection.rest_length(head))
            return self.protection.open(rest)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionLost(f"{self.peer} closed the connection") from error

    def send(self, message: object) -> None:
        """Queue a frame; never blocks. A peer that stops reading is cut off by `overfull`."""
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        """The same for a frame that is encoded already (one message for many peers)."""
        if self._writer.is_closing():
            return
        sealed = self.protection.seal(frame)
        self._writer.write(sealed if self._tunnel is None else self._tunnel.seal(sealed))

    @property
    def overfull(self) -> bool:
        transport = self._writer.transport
        return transport.get_write_buffer_size() > 8 * FRAME_LIMIT

    async def flush(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConnectionLost(f"{self.peer} closed the connection") from error

    async def finish(self) -> None:
        """Say nothing more, and wait until the other side has read it all and closed."""
        try:
            self._writer.write_eof()
            while await self._reader.read(1 << 16):
                continue
        except OSError as error:
            raise ConnectionLost(f"{self.peer} closed the connection") from error

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._writer.transport.abort()


async def accept(wire: AsyncWire, secret: bytes, run: str = "", *, tls: bool = False) -> Hello:
    """The coordinator's side of the handshake."""
    challenge = new_challenge(tls=tls)
    wire.send(challenge)
    async with async_timeout.timeout(HANDSHAKE):
        try:
            binding = await wire.encrypt(listens=True) if tls else ""
            session = check_hello(await wire.receive(), challenge, secret, run, binding)
        except ProtocolError as error:
            wire.send(_refusal(error))
            await wire.flush()
            raise
    wire.send(accepted(session, secret))
    wire.protection.start(session, secret, COORDINATOR)
    return session.hello


def _refusal(error: ProtocolError) -> Refused:
    return Refused(str(error) if isinstance(error, HandshakeRefused) else "not understood")


async def dial(address: str, role: str, name: str, secret: bytes) -> AsyncWire:
    """Open and authenticate a wire from an asyncio process."""
    host, port = split_address(address)
    try:
        async with async_timeout.timeout(HANDSHAKE):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"nobody answers at {address}: {error}") from None
    wire = AsyncWire(reader, writer)
    if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
        wire.abort()  # a free port of our own range, dialled by chance from that very port
        raise Unreachable(f"nobody answers at {address}")
    try:
        async with async_timeout.timeout(HANDSHAKE):
            challenge = check_challenge(await wire.receive())
            binding = await wire.encrypt(listens=False) if challenge.tls else ""
            session = answer_challenge(challenge, _greeting(role, name), secret, binding)
            wire.send(session.hello)
            check_welcome(await wire.receive(), session, secret)
    except TimeoutError:
        wire.abort()
        raise Unreachable(f"{address} does not answer the handshake") from None
    except BaseException:
        wire.abort()
        raise
    wire.protection.start(session, secret, DIALLER)
    return wire


class SyncWire:
    """One authenticated connection in a blocking process or thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._tunnel: Tunnel | None = None
        self.protection = Protection()

    def encrypt(self, *, listens: bool) -> str:
        """From now on everything goes through a TLS session; its binding."""
        tunnel = Tunnel(listens=listens)
        while not tunnel.shake():
            self._send_bytes(tunnel.unsent())
            tunnel.feed(self._some(_CHUNK))
        self._send_bytes(tunnel.unsent())
        self._tunnel = tunnel
        return tunnel.binding

    @property
    def is_encrypted(self) -> bool:
        return self._tunnel is not None

    @property
    def has_more(self) -> bool:
        """Whether something has been taken from the socket that nobody has received yet."""
        return self._tunnel is not None and self._tunnel.has_more

    def receive(self) -> object:
        try:
            head = self._exactly(_LENGTH.size)
            rest = self._exactly(self.protection.rest_length(head))
            return decode_body(self.protection.open(rest))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._plain(min(count, _CHUNK))
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _plain(self, most: int) -> bytes:
        if self._tunnel is None:
            return self._some(most)
        while not (part := self._tunnel.read(most)):
            self._tunnel.feed(self._some(_CHUNK))
        return part

    def _some(self, most: int) -> bytes:
        data = self.sock.recv(most)
        if not data:
            raise ConnectionLost("the other side closed the connection")
        return data

    def receive_bytes(self) -> bytes:
        """What the other side has said, in whatever pieces; waits only if nothing has come.

        May be b"": what has come says nothing yet.
        """
        try:
            data = self._some(_CHUNK)
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        if self._tunnel is None:
            return data
        self._tunnel.feed(data)
        return b"".join(iter(lambda: self._tunnel.read(_CHUNK), b""))  # type: ignore[union-attr]

    def send(self, message: object) -> None:
        self.send_frame(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        sealed = self.protection.seal(frame)
        self._send_bytes(sealed if self._tunnel is None else self._tunnel.seal(sealed))

    def _send_bytes(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error

    def close(self) -> None:
        self.sock.close()


def accept_blocking(
    sock: socket.socket, secret: bytes, *, tls: bool = False
) -> tuple[SyncWire, Hello]:
    """The listening side of the handshake, on a connection that was accepted."""
    wire = SyncWire(sock)
    challenge = new_challenge(tls=tls)
    wire.send(challenge)
    binding = wire.encrypt(listens=True) if tls else ""
    session = check_hello(wire.receive(), challenge, secret, binding=binding)
    wire.send(accepted(session, secret))
    wire.protection.start(session, secret, COORDINATOR)
    return wire, session.hello


def greet_blocking(
    sock: socket.socket, role: str, name: str, secret: bytes, run: str = ""
) -> SyncWire:
    """The dialling side of the handshake, on a connection that is open."""
    wire = SyncWire(sock)
    challenge = check_challenge(wire.receive())
    binding = wire.encrypt(listens=False) if challenge.tls else ""
    session = answer_challenge(challenge, _greeting(role, name, run), secret, binding)
    wire.send(session.hello)
    check_welcome(wire.receive(), session, secret)
    wire.protection.start(session, secret, DIALLER)
    return wire


def dial_blocking(
    address: str,
    role: str,
    name: str,
    secret: bytes,
    timeout: float = HANDSHAKE,
    run: str = "",
) -> SyncWire:
    """Open and authenticate a wire from a blocking process. The socket keeps `timeout`."""
    try:
        sock = socket.create_connection(split_address(address), timeout=timeout)
    except OSError as error:
        raise Unreachable(f"nobody answers at {address}: {error}") from None
    try:
        itself = sock.getsockname() == sock.getpeername()
        tune(sock)
    except OSError as error:  # reset before we came to ask
        sock.close()
        raise Unreachable(f"nobody answers at {address}: {error}") from None
    if itself:
        sock.close()  # a free port of our own range, dialled by chance from that very port
        raise Unreachable(f"nobody answers at {address}")
    try:
        return greet_blocking(sock, role, name, secret, run)
    except TimeoutError:
        sock.close()
        raise Unreachable(f"{address} does not answer the handshake") from None
    except BaseException:
        sock.close()
        raise


def tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`; anything else is a ProtocolError that says so."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536):
        raise ProtocolError(f"wanted HOST:PORT, got {address!r:.200}")
    return host.removeprefix("[").removesuffix("]"), int(port)
