"""Attacks on a wire by somebody on the way, who sees every frame and may change what passes."""

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from midflight.errors import FrameForged, HandshakeRefused
from midflight.protocol.handshake import (
    COORDINATOR,
    DIALLER,
    TAG_SIZE,
    VERSION,
    Session,
    accepted,
    answer_challenge,
    check_challenge,
    check_hello,
    check_welcome,
)
from midflight.protocol.messages import (
    Accepted,
    Beat,
    Challenge,
    Hello,
    StatusRequested,
    StopMember,
)
from midflight.protocol.wire import accept_blocking, encode_frame, greet_blocking, new_challenge

SECRET = b"secret"


class OnTheWay:
    """A connection with somebody in the middle, who has let the handshake pass."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        dialler, self.from_dialler = self._pair()
        self.to_listener, listener = self._pair()
        with ThreadPoolExecutor(2) as threads:
            dialled = threads.submit(greet_blocking, dialler, "agent", "h0", SECRET)
            accepted = threads.submit(accept_blocking, listener, SECRET)
            self.from_dialler.sendall(read_frame(self.to_listener, 0))  # the Challenge
            self.to_listener.sendall(read_frame(self.from_dialler, 0))  # the Hello
            self.from_dialler.sendall(read_frame(self.to_listener, 0))  # Accepted
            self.dialler, (self.listener, _) = dialled.result(), accepted.result()

    def _pair(self) -> tuple[socket.socket, socket.socket]:
        pair = socket.socketpair()
        for sock in pair:
            sock.settimeout(5.0)
        self._sockets += pair
        return pair

    def sent(self, *messages: object) -> list[bytes]:
        """The frames in which the dialler says this, as they pass."""
        frames = []
        for message in messages:
            self.dialler.send(message)
            frames.append(read_frame(self.from_dialler, self.dialler.protection.tag_size))
        return frames

    def deliver(self, *frames: bytes) -> list[object]:
        """What the listener takes for the other side's words."""
        self.to_listener.sendall(b"".join(frames))
        return [self.listener.receive() for _ in frames]

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def read_frame(sock: socket.socket, tag: int) -> bytes:
    head = sock.recv(4, socket.MSG_WAITALL)
    return head + sock.recv(struct.unpack(">I", head)[0] + tag, socket.MSG_WAITALL)


@pytest.fixture
def line() -> Iterator[OnTheWay]:
    it = OnTheWay()
    yield it
    it.close()


def test_frames_that_nobody_touched_arrive(line: OnTheWay) -> None:
    said = [Beat(1, 2, True), StatusRequested(), Beat(2, 3, False)]
    assert line.deliver(*line.sent(*said)) == said


def test_a_tampered_frame_ends_the_connection(line: OnTheWay) -> None:
    (frame,) = line.sent(StopMember("m1", 5.0))
    with pytest.raises(FrameForged, match="changed, repeated, removed or inserted"):
        line.deliver(frame.replace(b'"m1"', b'"m2"'))


def test_a_replayed_frame_ends_the_connection(line: OnTheWay) -> None:
    (frame,) = line.sent(StopMember("m1", 5.0))
    assert line.deliver(frame) == [StopMember("m1", 5.0)]
    with pytest.raises(FrameForged, match="frame 1 is not"):
        line.deliver(frame)


def test_reordered_frames_end_the_connection(line: OnTheWay) -> None:
    first, second = line.sent(Beat(1, 1, True), Beat(2, 2, True))
    with pytest.raises(FrameForged):
        line.deliver(second, first)


def test_a_frame_left_out_ends_the_connection(line: OnTheWay) -> None:
    first, _, third = line.sent(Beat(1, 1, True), Beat(2, 2, True), Beat(3, 3, True))
    assert line.deliver(first) == [Beat(1, 1, True)]
    with pytest.raises(FrameForged):
        line.deliver(third)


def test_a_frame_sent_back_to_its_sender_ends_the_connection(line: OnTheWay) -> None:
    (frame,) = line.sent(StopMember("m1", 5.0))
    line.from_dialler.sendall(frame)
    with pytest.raises(FrameForged):
        line.dialler.receive()


def test_an_injected_frame_ends_the_connection(line: OnTheWay) -> None:
    with pytest.raises(FrameForged, match="frame 0 is not"):
        line.deliver(encode_frame(StopMember("m1", 5.0)) + bytes(line.listener.protection.tag_size))


def test_a_frame_of_another_connection_ends_this_one(line: OnTheWay) -> None:
    other = OnTheWay()
    (frame,) = other.sent(StopMember("m1", 5.0))
    other.close()
    with pytest.raises(FrameForged):
        line.deliver(frame)


def test_a_tag_is_bound_to_where_the_frame_ends(line: OnTheWay) -> None:
    (frame,) = line.sent(Beat(1, 1, True))
    moved = struct.pack(">I", len(frame) - 4 - TAG_SIZE - 1) + frame[4:-1]
    with pytest.raises(FrameForged):
        line.deliver(moved)


# --- the handshake itself ---------------------------------------------------------------------


def answer(challenge: Challenge, role: str, name: str, run: str) -> Session:
    return answer_challenge(challenge, Hello(VERSION, role, name, "n", "", run), SECRET)


@pytest.mark.parametrize(
    "change",
    [{"role": "member"}, {"name": "h1"}, {"run": "other"}, {"nonce": "other"}, {"proof": "é"}],
)
def test_a_proof_is_bound_to_role_name_run_and_nonce(change: dict[str, str]) -> None:
    challenge = new_challenge()
    hello = answer(challenge, "agent", "h0", "run").hello
    assert check_hello(hello, challenge, SECRET, "run").hello == hello
    with pytest.raises(HandshakeRefused, match="the token does not match"):
        check_hello(replace(hello, **change), challenge, SECRET, "run")  # type: ignore[arg-type]


def test_a_proof_is_bound_to_the_challenge() -> None:
    hello = answer(new_challenge(), "agent", "h0", "").hello
    with pytest.raises(HandshakeRefused, match="the token does not match"):
        check_hello(hello, new_challenge(), SECRET)


def test_a_dialler_s_proof_is_no_welcome() -> None:
    session = answer(new_challenge(), "agent", "h0", "")
    check_welcome(accepted(session, SECRET), session, SECRET)
    with pytest.raises(HandshakeRefused, match="does not know"):
        check_welcome(Accepted(session.hello.proof), session, SECRET)


def test_whoever_means_another_run_is_told_which_one_this_is() -> None:
    challenge = new_challenge()
    hello = answer(challenge, "member", "m0", "mine").hello
    with pytest.raises(HandshakeRefused, match="this is run 'yours', not 'mine'"):
        check_hello(hello, challenge, SECRET, "yours")


def test_a_coordinator_of_another_version_is_said_with_both_numbers() -> None:
    with pytest.raises(HandshakeRefused, match=f"version {VERSION}, the other 2; run the same"):
        check_challenge(Challenge(2, "abc"))


def test_proofs_and_keys_differ_by_side_purpose_and_connection() -> None:
    sessions = [answer(new_challenge(), "agent", "h0", "") for _ in range(2)]
    derived = [
        make(session, side)
        for session in sessions
        for side in (COORDINATOR, DIALLER)
        for make in (_proof, _first_tag)
    ]
    assert len(set(derived)) == len(derived)


def _proof(session: Session, side: str) -> str:
    return session.proof(SECRET, side)


def _first_tag(session: Session, side: str) -> str:
    return session.mac(SECRET, side).tag(b"body").hex()
