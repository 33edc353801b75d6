"""Frames on a socket: four bytes of length, then JSON; and the handshake that opens a wire.

Both sides prove that they know the job's secret without sending it: each answers the other's
nonce with an HMAC. Until then a frame may have 4 KiB; afterwards 4 MiB. Versions must be equal.
There is an asyncio form for the processes that serve many peers, and a blocking one for the
thread inside a training process.
"""

import asyncio
import hashlib
import hmac
import secrets
import socket
import struct
from typing import Protocol

from midflight.errors import ConnectionLost, HandshakeRefused, ProtocolError, Unreachable
from midflight.protocol import codec
from midflight.protocol.messages import REGISTRY, Accepted, Challenge, Hello, Refused

VERSION = 2
FRAME_LIMIT = 4 << 20
HANDSHAKE_LIMIT = 4 << 10
HANDSHAKE_SECONDS = 10.0
ROLES = ("agent", "member", "client")
_LENGTH = struct.Struct(">I")


class Message(Protocol):
    """Any dataclass of `messages.REGISTRY`."""

    __dataclass_fields__: dict[str, object]


def encode_frame(message: object) -> bytes:
    body = codec.dumps({"type": type(message).__name__, "body": codec.encode(message)})
    if len(body) > FRAME_LIMIT:
        raise ProtocolError(
            f"{type(message).__name__} has {len(body)} bytes, more than a frame's {FRAME_LIMIT}"
        )
    return _LENGTH.pack(len(body)) + body


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


def proof(secret: bytes, side: str, challenge: Challenge, hello_nonce: str) -> str:
    text = f"midflight {side} {challenge.version} {challenge.nonce} {hello_nonce}"
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def new_nonce() -> str:
    return secrets.token_hex(16)


def answer_challenge(message: object, role: str, name: str, secret: bytes) -> Hello:
    """What a dialling peer says to the coordinator's challenge."""
    if not isinstance(message, Challenge):
        raise ProtocolError(f"wanted a Challenge, got {type(message).__name__}")
    nonce = new_nonce()
    return Hello(VERSION, role, name, nonce, proof(secret, role, message, nonce))


def check_hello(message: object, challenge: Challenge, secret: bytes) -> Hello:
    """Let a peer in, or raise HandshakeRefused with a reason that reveals nothing."""
    if not isinstance(message, Hello):
        raise HandshakeRefused("the first message must be a Hello")
    if message.version != VERSION:
        raise HandshakeRefused(
            f"this side speaks protocol version {VERSION}, the other {message.version}; "
            "run the same Midflight release on both"
        )
    if message.role not in ROLES:
        raise HandshakeRefused(f"unknown role {message.role!r:.40}")
    expected = proof(secret, message.role, challenge, message.nonce)
    if not hmac.compare_digest(expected.encode(), message.proof.encode()):
        raise HandshakeRefused("the token does not match; use this run's token file")
    return message


def check_welcome(message: object, challenge: Challenge, hello: Hello, secret: bytes) -> None:
    """Make sure that the coordinator knows the secret too."""
    if isinstance(message, Refused):
        raise HandshakeRefused(message.reason)
    expected = proof(secret, "coordinator", challenge, hello.nonce)
    if not isinstance(message, Accepted) or not hmac.compare_digest(
        expected.encode(), message.proof.encode()
    ):
        raise HandshakeRefused("the other side does not know this run's token")


class AsyncWire:
    """One authenticated connection in an asyncio process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.limit = HANDSHAKE_LIMIT
        sock = writer.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            tune(sock)

    @property
    def peer(self) -> str:
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "a local peer"

    @property
    def own_address(self) -> str:
        name = self._writer.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else "127.0.0.1"

    async def receive(self) -> object:
        return decode_body(await self.receive_body())

    async def receive_body(self) -> bytes:
        """A frame as it came, not looked at."""
        try:
            head = await self._reader.readexactly(_LENGTH.size)
            return await self._reader.readexactly(body_length(head, self.limit))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionLost(f"{self.peer} closed the connection") from error

    def send(self, message: object) -> None:
        """Queue a frame; never blocks. A peer that stops reading is cut off by `overfull`."""
        if not self._writer.is_closing():
            self._writer.write(encode_frame(message))

    def send_frame(self, frame: bytes) -> None:
        """The same for a frame that is encoded already (one message for many peers)."""
        if not self._writer.is_closing():
            self._writer.write(frame)

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


async def accept(wire: AsyncWire, secret: bytes) -> Hello:
    """The coordinator's side of the handshake."""
    challenge = Challenge(VERSION, new_nonce())
    wire.send(challenge)
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        try:
            hello = check_hello(await wire.receive(), challenge, secret)
        except ProtocolError as error:
            reason = str(error) if isinstance(error, HandshakeRefused) else "not understood"
            wire.send(Refused(reason))
            await wire.flush()
            raise
    wire.send(Accepted(proof(secret, "coordinator", challenge, hello.nonce)))
    wire.limit = FRAME_LIMIT
    return hello


async def dial(address: str, role: str, name: str, secret: bytes) -> AsyncWire:
    """Open and authenticate a wire from an asyncio process."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"nobody answers at {address}: {error}") from None
    wire = AsyncWire(reader, writer)
    if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
        wire.abort()  # a free port of our own range, dialled by chance from that very port
        raise Unreachable(f"nobody answers at {address}")
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            challenge = await wire.receive()
            hello = answer_challenge(challenge, role, name, secret)
            wire.send(hello)
            assert isinstance(challenge, Challenge)
            check_welcome(await wire.receive(), challenge, hello, secret)
    except TimeoutError:
        wire.abort()
        raise Unreachable(f"{address} does not answer the handshake") from None
    except BaseException:
        wire.abort()
        raise
    wire.limit = FRAME_LIMIT
    return wire


class SyncWire:
    """One authenticated connection in a blocking process or thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.limit = HANDSHAKE_LIMIT

    def receive(self) -> object:
        try:
            head = self._exactly(_LENGTH.size)
            return decode_body(self._exactly(body_length(head, self.limit)))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.sock.recv(min(count, 1 << 16))
            if not part:
                raise ConnectionLost("the other side closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, message: object) -> None:
        try:
            self.sock.sendall(encode_frame(message))
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error

    def close(self) -> None:
        self.sock.close()


def dial_blocking(
    address: str, role: str, name: str, secret: bytes, timeout: float = HANDSHAKE_SECONDS
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
    wire = SyncWire(sock)
    try:
        challenge = wire.receive()
        hello = answer_challenge(challenge, role, name, secret)
        wire.send(hello)
        assert isinstance(challenge, Challenge)
        check_welcome(wire.receive(), challenge, hello, secret)
    except TimeoutError:
        sock.close()
        raise Unreachable(f"{address} does not answer the handshake") from None
    except BaseException:
        sock.close()
        raise
    wire.limit = FRAME_LIMIT
    return wire


def tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`; anything else is a ProtocolError that says so."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ProtocolError(f"wanted HOST:PORT, got {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
