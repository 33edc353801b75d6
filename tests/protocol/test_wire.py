"""Frames and handshakes over real sockets, in both forms: with asyncio and without."""

import asyncio
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from midflight.errors import (
    ConnectionLost,
    FrameForged,
    HandshakeRefused,
    ProtocolError,
    Unreachable,
)
from midflight.protocol import wire
from midflight.protocol.handshake import DIALLER, VERSION, Session
from midflight.protocol.messages import (
    Beat,
    Challenge,
    Dismiss,
    Hello,
    KeySet,
    Refused,
    StatusRequested,
)
from midflight.protocol.wire import (
    FRAME_LIMIT,
    AsyncWire,
    SyncWire,
    accept_blocking,
    dial,
    dial_blocking,
    encode_frame,
    split_address,
)

SECRET = b"secret"


@pytest.fixture
def pair() -> Iterator[tuple[SyncWire, socket.socket]]:
    """A wire, and the bare socket at its other end."""
    here, there = socket.socketpair()
    here.settimeout(5.0)
    yield SyncWire(here), there
    here.close()
    there.close()


class Listener:
    """A server for one connection, in a thread, that does what the test says."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._sock.getsockname()[1]}"
        self._serve = serve
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        connection, _ = self._sock.accept()
        with connection:
            self._serve(connection)

    def __enter__(self) -> str:
        self._thread.start()
        return self.address

    def __exit__(self, *_: object) -> None:
        self._thread.join(5.0)
        self._sock.close()


def host_side(sock: socket.socket, secret: bytes = SECRET) -> SyncWire:
    """The coordinator's side of a handshake."""
    line, _ = accept_blocking(sock, secret)
    return line


def test_a_frame_may_come_in_any_pieces(pair: tuple[SyncWire, socket.socket]) -> None:
    line, other = pair
    for byte in encode_frame(Beat(1, 2, True)):
        other.send(bytes([byte]))
    assert line.receive() == Beat(1, 2, True)


def test_several_frames_in_one_piece_are_several_messages(
    pair: tuple[SyncWire, socket.socket],
) -> None:
    line, other = pair
    other.send(encode_frame(Beat(1, 2, True)) + encode_frame(StatusRequested()))
    assert [line.receive(), line.receive()] == [Beat(1, 2, True), StatusRequested()]


def test_a_frame_that_is_too_large_is_refused_by_its_announcement(
    pair: tuple[SyncWire, socket.socket],
) -> None:
    line, other = pair
    other.send(struct.pack(">I", 1 << 30))
    with pytest.raises(ProtocolError, match="1073741824 bytes was announced, more than 4096"):
        line.receive()


def test_a_length_that_was_changed_on_the_way_costs_the_connection_and_no_more(
    pair: tuple[SyncWire, socket.socket],
) -> None:
    """Nobody who knows the secret announces so much: it is no misunderstanding, to be given up."""
    line, other = pair
    said = Session(Challenge(VERSION, "1"), Hello(VERSION, "member", "m0", "2", ""))
    line.protection.start(said, SECRET, DIALLER)
    other.send(struct.pack(">I", 1 << 30))
    with pytest.raises(FrameForged, match=r"more than 4194304: somebody on the way"):
        line.receive()


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match=r"KeySet has \d+ bytes, more than a frame's"):
        encode_frame(KeySet(1, "key", "x" * FRAME_LIMIT))


def test_a_connection_that_ends_inside_a_frame_is_lost(
    pair: tuple[SyncWire, socket.socket],
) -> None:
    line, other = pair
    other.send(encode_frame(Beat(1, 2, True))[:-1])
    other.close()
    with pytest.raises(ConnectionLost):
        line.receive()


def test_what_is_said_to_nobody_is_a_lost_connection(pair: tuple[SyncWire, socket.socket]) -> None:
    line, other = pair
    other.close()
    with pytest.raises(ConnectionLost):
        for _ in range(100):
            line.send(Beat(1, 2, True))


def test_both_forms_understand_each_other() -> None:
    def serve(sock: socket.socket) -> None:
        line = host_side(sock)
        line.send(line.receive())

    with Listener(serve) as address:
        line = dial_blocking(address, "member", "m0", SECRET)
        line.send(Dismiss("grüße", failed=False))
        assert line.receive() == Dismiss("grüße", failed=False)
        line.close()

    async def from_asyncio(address: str) -> object:
        line = await dial(address, "member", "m0", SECRET)
        line.send(Beat(5, 6, False))
        answer = await line.receive()
        line.close()
        return answer

    with Listener(serve) as address:
        assert asyncio.run(from_asyncio(address)) == Beat(5, 6, False)


def test_nobody_at_an_address_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable, match=f"nobody answers at {address}"):
        dial_blocking(address, "client", "", SECRET)
    with pytest.raises(Unreachable, match=f"nobody answers at {address}"):
        asyncio.run(dial(address, "client", "", SECRET))


def test_one_who_listens_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HANDSHAKE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="does not answer the handshake"):
            dial_blocking(address, "client", "", SECRET, timeout=0.2)
        with pytest.raises(Unreachable, match="does not answer the handshake"):
            asyncio.run(dial(address, "client", "", SECRET))


def test_one_who_closes_the_door_is_a_lost_connection() -> None:
    with Listener(lambda sock: None) as address, pytest.raises(ConnectionLost):
        dial_blocking(address, "client", "", SECRET)


def test_one_who_hangs_up_before_a_word_is_said_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.create_connection

    def and_see_it_reset(*where: object, **how: object) -> socket.socket:
        sock = connect(*where, **how)  # type: ignore[arg-type]
        answered, _ = door.accept()
        answered.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        answered.close()
        poll = select.poll()
        poll.register(sock, 0)
        assert poll.poll(5000), "the reset never came"
        return sock

    with socket.create_server(("127.0.0.1", 0)) as door:
        monkeypatch.setattr(socket, "create_connection", and_see_it_reset)
        with pytest.raises(Unreachable, match="nobody answers at 127"):
            dial_blocking(f"127.0.0.1:{door.getsockname()[1]}", "member", "m0", SECRET)


def test_a_refusal_is_passed_on_in_its_words() -> None:
    def serve(sock: socket.socket) -> None:
        line = SyncWire(sock)
        line.send(Challenge(VERSION, "abc"))
        line.receive()
        line.send(Refused("not today"))

    with Listener(serve) as address, pytest.raises(HandshakeRefused, match="not today"):
        dial_blocking(address, "client", "", SECRET)


def test_something_else_than_a_coordinator_is_not_understood() -> None:
    with (
        Listener(lambda sock: sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")) as address,
        pytest.raises(ProtocolError),
    ):
        dial_blocking(address, "client", "", SECRET)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host:80", ("host", 80)),
        ("127.0.0.1:65535", ("127.0.0.1", 65535)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text) == parts


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:65536", "host:-1"])
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ProtocolError, match="wanted HOST:PORT"):
        split_address(text)


def test_an_asyncio_wire_keeps_its_limit_until_the_handshake_is_done() -> None:
    async def story() -> None:
        reader = asyncio.StreamReader()
        here, there = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=here)
        line = AsyncWire(reader, writer)
        reader.feed_data(struct.pack(">I", 4097))
        with pytest.raises(ProtocolError, match="more than 4096"):
            await line.receive()
        line.abort()
        there.close()

    asyncio.run(story())
