"""One frame of the wire, written and read: bare, with its MAC, and encrypted as well.

A round does all in turn, so that a slow moment of the machine falls on all. There is no socket:
what is measured is encoding, the MAC and the TLS of the writer, those of the reader, and decoding;
and, by itself, the handshake of TLS on both sides.
"""

import time
from collections.abc import Callable
from statistics import median

from bench.rows import Row
from midflight.protocol import messages as say
from midflight.protocol.handshake import COORDINATOR, DIALLER, VERSION, Session
from midflight.protocol.tunnel import Tunnel
from midflight.protocol.wire import Protection, _expand, decode_body, encode_frame, new_challenge
from midflight.protocol.world import Member, World

ROUNDS = 15
ROUND_SECONDS = 0.02
SIZE = 1000  # members of the world
_LENGTH = 4  # bytes before a frame's body, which are read by themselves

_MEMBERS = tuple(Member(f"m{n}", f"host-{n // 8}", n % 8, "10.0.0.1") for n in range(SIZE))
MESSAGES: dict[str, object] = {
    "heartbeat": say.Beat(123_456, 123_460, waiting=False),
    f"world of {SIZE:,}": say.Form(World(7, _MEMBERS)),
}


def run() -> list[Row]:
    """One repeat of each message."""
    rows = [row for name, message in MESSAGES.items() for row in _rows(name, message)]
    shaken = median(_seconds(connected, 1) for _ in range(ROUNDS))
    return [*rows, Row("midflight", "wire", 0, 0, "TLS handshake, both sides", shaken * 1e6, "us")]


def _rows(name: str, message: object) -> list[Row]:
    def row(metric: str, value: float, unit: str) -> Row:
        return Row("midflight", "wire", 0, 0, f"{name}{metric}", value, unit)

    bare, protected, encrypted = measure(message)
    return [
        row(", frame", len(encode_frame(message)), "bytes"),
        row(" without MAC", bare * 1e6, "us"),
        row(" with MAC", protected * 1e6, "us"),
        row(" with MAC and TLS", encrypted * 1e6, "us"),
    ]


def connected() -> tuple[Tunnel, Tunnel]:
    """The two ends of a TLS session: who dialled, and who listened."""
    client, server = Tunnel(listens=False), Tunnel(listens=True)
    done = False
    while not done:
        client.shake()
        server.feed(client.unsent())
        done = server.shake()
        if sent := server.unsent():
            client.feed(sent)
    return client, server


def measure(message: object) -> tuple[float, float, float]:
    """Seconds for one frame: without a MAC, with one, and with one in a TLS session."""
    hello = say.Hello(VERSION, "member", "m0", "00", proof="", run="bench")
    session = Session(new_challenge(), hello)
    writer, reader = Protection(), Protection()
    writer.start(session, b"secret", DIALLER)
    reader.start(session, b"secret", COORDINATOR)

    def bare() -> None:
        decode_body(_expand(encode_frame(message)[_LENGTH:]))

    def protected() -> None:
        decode_body(reader.open(writer.seal(encode_frame(message))[_LENGTH:]))

    client, server = connected()

    def encrypted() -> None:
        server.feed(client.seal(writer.seal(encode_frame(message))))
        frame = b"".join(iter(lambda: server.read(1 << 16), b""))
        decode_body(reader.open(frame[_LENGTH:]))

    number = max(1, round(ROUND_SECONDS / _seconds(bare, 1)))
    ways = (bare, protected, encrypted)
    rounds = [tuple(_seconds(way, number) for way in ways) for _ in range(ROUNDS)]
    first, second, third = (median(each) for each in zip(*rounds, strict=True))
    return first, second, third


def _seconds(work: Callable[[], object], number: int) -> float:
    begun = time.perf_counter()
    for _ in range(number):
        work()
    return (time.perf_counter() - begun) / number
