"""The handshake that opens a wire, and the MAC that protects every frame after it. Pure.

Both sides prove that they know the job's secret without sending it: each answers the other's nonce
with an HMAC over everything that was said, the role, the name and the run included. From the same
words each direction gets a key of its own. A frame carries a MAC (keyed BLAKE2b) over its number
in that direction and its content, so one that was changed, repeated, left out, put elsewhere or
sent back ends the connection. Encryption is TLS, underneath (`tunnel`); the words then include what
only the two ends of one TLS session share.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass, replace

from midflight.errors import FrameForged, HandshakeRefused, ProtocolError
from midflight.printable import in_one_line
from midflight.protocol.messages import Accepted, Challenge, Hello, Refused

VERSION = 4
ROLES = ("agent", "member", "client")
COORDINATOR, DIALLER = "coordinator", "dialler"
TAG_SIZE = 16
LONGEST_REASON = 200  # characters that are shown of a refusal


class FrameMac:
    """The tags of the frames in one direction, in the order in which they are sent."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=TAG_SIZE)
        self._count = 0

    def tag(self, body: bytes | memoryview) -> bytes:
        mac = self._keyed.copy()
        mac.update(self._count.to_bytes(8, "big"))
        mac.update(body)
        self._count += 1
        return mac.digest()

    def check(self, body: bytes, tag: bytes) -> None:
        number = self._count
        if not hmac.compare_digest(self.tag(body), tag):
            raise FrameForged(
                f"frame {number} is not the one that the other side sent: somebody on the way "
                "changed, repeated, removed or inserted it"
            )


@dataclass(frozen=True)
class Session:
    """What both sides of one connection have said before the first frame."""

    challenge: Challenge
    hello: Hello
    binding: str = ""  # of the TLS session underneath; "": there is none

    def proof(self, secret: bytes, side: str) -> str:
        return self._derive(secret, "proof", side).hex()

    def mac(self, secret: bytes, side: str) -> FrameMac:
        """For the frames that this side sends."""
        return FrameMac(self._derive(secret, "frames", side))

    def _derive(self, secret: bytes, purpose: str, side: str) -> bytes:
        hello = self.hello
        said = (VERSION, self.challenge.nonce, hello.nonce, hello.role, hello.name, hello.run)
        text = json.dumps(["midflight", purpose, side, *said, self.binding])
        return hmac.digest(secret, text.encode(), "sha256")


def check_challenge(message: object) -> Challenge:
    """What the listening side opens with; raises HandshakeRefused if it lets nobody in."""
    if isinstance(message, Refused):
        raise _refused(message)
    if not isinstance(message, Challenge):
        raise ProtocolError(f"wanted a Challenge, got {type(message).__name__}")
    if message.version != VERSION:
        raise HandshakeRefused(_other_version(message.version))
    return message


def answer_challenge(
    challenge: Challenge, unproven: Hello, secret: bytes, binding: str = ""
) -> Session:
    """What a dialling peer says: who it is, now with the proof."""
    proof = Session(challenge, unproven, binding).proof(secret, DIALLER)
    return Session(challenge, replace(unproven, proof=proof), binding)


def _refused(message: Refused) -> HandshakeRefused:
    """Nobody has proven anything yet: these may be a stranger's words."""
    return HandshakeRefused(in_one_line(message.reason)[:LONGEST_REASON])


def _other_version(version: int) -> str:
    return (
        f"this side speaks protocol version {VERSION}, the other {version}; "
        "run the same Midflight release on both"
    )


def check_hello(
    message: object, challenge: Challenge, secret: bytes, run: str = "", binding: str = ""
) -> Session:
    """Let a peer in, or raise HandshakeRefused with a reason that reveals nothing."""
    if not isinstance(message, Hello):
        raise HandshakeRefused("the first message must be a Hello")
    if message.version != VERSION:
        raise HandshakeRefused(_other_version(message.version))
    if message.role not in ROLES:
        raise HandshakeRefused(f"unknown role {message.role!r:.40}")
    session = Session(challenge, message, binding)
    if not _same(session.proof(secret, DIALLER), message.proof):
        raise HandshakeRefused("the token does not match; use this run's token file")
    if run and message.run and message.run != run:
        raise HandshakeRefused(f"this is run {run!r}, not {message.run!r:.80}")
    return session


def accepted(session: Session, secret: bytes) -> Accepted:
    return Accepted(session.proof(secret, COORDINATOR))


def check_welcome(message: object, session: Session, secret: bytes) -> None:
    """Make sure that the coordinator knows the secret too."""
    if isinstance(message, Refused):
        raise _refused(message)
    expected = session.proof(secret, COORDINATOR)
    if not isinstance(message, Accepted) or not _same(expected, message.proof):
        raise HandshakeRefused("the other side does not know this run's token")


def _same(expected: str, said: str) -> bool:
    return hmac.compare_digest(expected.encode(), said.encode())
