"""Attacks on an encrypted wire by somebody on the way, and what the two ends still hear."""

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from midflight.errors import (
    ConnectionLost,
    FrameForged,
    HandshakeRefused,
    MidflightError,
    ProtocolError,
)
from midflight.protocol.messages import Beat, Challenge, Hello, Refused, StatusRequested, StopMember
from midflight.protocol.tunnel import Tunnel
from midflight.protocol.wire import (
    SyncWire,
    accept_blocking,
    decode_body,
    encode_frame,
    greet_blocking,
)

SECRET = b"secret"
PATIENCE = 10.0


@dataclass
class Ends:
    """Two ends that do their handshake in threads, and whatever connects them."""

    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    sockets: list[socket.socket] = field(default_factory=list)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for sock in pair:
            sock.settimeout(PATIENCE)
        self.sockets += pair
        return pair

    def dial(self, sock: socket.socket) -> "Future[SyncWire]":
        return self.threads.submit(greet_blocking, sock, "agent", "h0", SECRET)

    def listen(self, sock: socket.socket) -> "Future[tuple[SyncWire, Hello]]":
        return self.threads.submit(accept_blocking, sock, SECRET, tls=True)

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        self.threads.shutdown()


@pytest.fixture
def ends() -> Iterator[Ends]:
    it = Ends()
    yield it
    it.close()


class Tap:
    """Passes bytes on between two sockets, and keeps what it saw."""

    def __init__(self, ends: Ends) -> None:
        self.seen = bytearray()
        self.dialler, here = ends.pair()
        self.listener, there = ends.pair()
        for source, target in ((here, there), (there, here)):
            threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.seen += data
                target.sendall(data)
        except OSError:
            return


def connected(ends: Ends) -> tuple[SyncWire, SyncWire, Tap]:
    tap = Tap(ends)
    dialled, accepted = ends.dial(tap.dialler), ends.listen(tap.listener)
    return dialled.result(PATIENCE), accepted.result(PATIENCE)[0], tap


def test_what_is_said_is_heard_on_the_other_side_and_cannot_be_read_on_the_way(ends: Ends) -> None:
    dialler, listener, tap = connected(ends)
    said = [Beat(1, 2, True), StatusRequested(), StopMember("a-name-that-shows", 5.0)]
    for message in said:
        dialler.send(message)
    assert [listener.receive() for _ in said] == said
    listener.send(said[2])
    assert dialler.receive() == said[2]
    assert b"a-name-that-shows" not in tap.seen
    assert b"Challenge" in tap.seen and b"Hello" not in tap.seen


def test_a_frame_that_came_with_another_one_is_not_forgotten(ends: Ends) -> None:
    dialler, listener, _ = connected(ends)
    dialler._send_bytes(  # in one piece
        b"".join(
            dialler._tunnel.seal(dialler.protection.seal(encode_frame(Beat(n, n, True))))  # type: ignore[union-attr]
            for n in range(3)
        )
    )
    assert listener.receive() == Beat(0, 0, True)
    heard: list[object] = []
    while len(heard) < 2:
        heard.append(listener.receive())
    assert heard == [Beat(1, 1, True), Beat(2, 2, True)]
    assert not listener.has_more


def test_a_large_frame_passes(ends: Ends) -> None:
    dialler, listener, _ = connected(ends)
    large = Refused("x" * 3_000_000)
    sending = ends.threads.submit(dialler.send, large)
    assert listener.receive() == large
    sending.result(PATIENCE)


def test_one_thread_may_send_while_another_one_receives(ends: Ends) -> None:
    dialler, listener, _ = connected(ends)
    count = 500

    def send(wire: SyncWire) -> None:
        for number in range(count):
            wire.send(Beat(number, 0, True))

    sending = [ends.threads.submit(send, wire) for wire in (dialler, listener)]
    other = ends.threads.submit(lambda: [dialler.receive() for _ in range(count)])
    wanted = [Beat(number, 0, True) for number in range(count)]
    assert [listener.receive() for _ in range(count)] == wanted
    assert other.result(PATIENCE) == wanted
    for each in sending:
        each.result(PATIENCE)


def test_two_tls_sessions_with_somebody_between_them_are_refused(ends: Ends) -> None:
    """He shows the same certificate, whose key everybody has, and passes on what is said inside."""
    dialler, here = ends.pair()
    there, listener = ends.pair()
    dialled, accepted = ends.dial(dialler), ends.listen(listener)

    def between() -> None:
        victim, server = SyncWire(here), SyncWire(there)
        challenge = server.receive()
        victim.send(challenge)
        server.encrypt(listens=False)
        victim.encrypt(listens=True)
        hello = victim.receive()
        assert isinstance(hello, Hello)
        server.send(hello)

    ends.threads.submit(between).result(PATIENCE)
    with pytest.raises(HandshakeRefused, match="the token does not match"):
        accepted.result(PATIENCE)
    here.close()
    with pytest.raises(MidflightError):
        dialled.result(PATIENCE)


def test_a_challenge_whose_tls_was_struck_out_leads_nowhere(ends: Ends) -> None:
    """The dialler then speaks in clear; what it proves is of no use inside a TLS session."""
    dialler, here = ends.pair()
    there, listener = ends.pair()
    dialled, accepted = ends.dial(dialler), ends.listen(listener)

    def between() -> None:
        victim, server = SyncWire(here), SyncWire(there)
        challenge = server.receive()
        assert isinstance(challenge, Challenge) and challenge.tls
        victim.send(Challenge(challenge.version, challenge.nonce, tls=False))
        server.encrypt(listens=False)
        server.send(victim.receive())

    ends.threads.submit(between).result(PATIENCE)
    with pytest.raises(HandshakeRefused, match="the token does not match"):
        accepted.result(PATIENCE)
    here.close()
    with pytest.raises(ConnectionLost):
        dialled.result(PATIENCE)


def test_words_in_clear_where_tls_was_agreed_are_refused(ends: Ends) -> None:
    sock, listener = ends.pair()
    accepted = ends.listen(listener)
    wire = SyncWire(sock)
    assert isinstance(wire.receive(), Challenge)
    wire.send(Hello(4, "agent", "h0", "nonce", "proof"))
    with pytest.raises(ProtocolError, match="could not be encrypted"):
        accepted.result(PATIENCE)


def test_a_changed_byte_ends_the_connection(ends: Ends) -> None:
    dialler, listener, _ = connected(ends)
    assert dialler._tunnel is not None
    sealed = bytearray(
        dialler._tunnel.seal(dialler.protection.seal(encode_frame(StatusRequested())))
    )
    sealed[-1] ^= 1
    dialler._send_bytes(bytes(sealed))
    with pytest.raises(FrameForged, match="was not encrypted by the other side"):
        listener.receive()
    with pytest.raises(ConnectionLost, match="nothing can be encrypted any more"):
        listener.send(StatusRequested())


def test_each_session_has_a_binding_of_its_own_and_both_ends_have_the_same() -> None:
    found = []
    for _ in range(2):
        client, server = Tunnel(listens=False), Tunnel(listens=True)
        done = [False, False]
        while not all(done):
            for number, (one, other) in enumerate(((client, server), (server, client))):
                done[number] = done[number] or one.shake()
                if data := one.unsent():
                    other.feed(data)
        assert client.binding == server.binding
        found.append(client.binding)
    assert found[0] != found[1]
    assert all(len(binding) >= 64 for binding in found)


def test_the_first_word_is_as_it_was_so_that_a_relay_knows_a_coordinator(ends: Ends) -> None:
    sock, listener = ends.pair()
    ends.listen(listener)
    (length,) = struct.unpack(">I", sock.recv(4, socket.MSG_WAITALL))
    assert isinstance(decode_body(sock.recv(length, socket.MSG_WAITALL)), Challenge)
    sock.close()
