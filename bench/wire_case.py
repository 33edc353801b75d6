"""One frame of the wire, written and read, with its MAC and without.

A round does both in turn, so that a slow moment of the machine falls on both. There is no socket:
what is measured is encoding, the MAC of the writer, that of the reader, and decoding.
"""

import time
from collections.abc import Callable
from statistics import median

from bench.rows import Row
from midflight.protocol import messages as say
from midflight.protocol.handshake import COORDINATOR, DIALLER, VERSION, Session
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
    return [row for name, message in MESSAGES.items() for row in _rows(name, message)]


def _rows(name: str, message: object) -> list[Row]:
    def row(metric: str, value: float, unit: str) -> Row:
        return Row("midflight", "wire", 0, 0, f"{name}{metric}", value, unit)

    bare, protected = measure(message)
    return [
        row(", frame", len(encode_frame(message)), "bytes"),
        row(" without MAC", bare * 1e6, "us"),
        row(" with MAC", protected * 1e6, "us"),
    ]


def measure(message: object) -> tuple[float, float]:
    """Seconds for one frame, without a MAC and with one."""
    hello = say.Hello(VERSION, "member", "m0", "00", proof="", run="bench")
    session = Session(new_challenge(), hello)
    writer, reader = Protection(), Protection()
    writer.start(session, b"secret", DIALLER)
    reader.start(session, b"secret", COORDINATOR)

    def bare() -> None:
        decode_body(_expand(encode_frame(message)[_LENGTH:]))

    def protected() -> None:
        decode_body(reader.open(writer.seal(encode_frame(message))[_LENGTH:]))

    number = max(1, round(ROUND_SECONDS / _seconds(bare, 1)))
    rounds = [(_seconds(bare, number), _seconds(protected, number)) for _ in range(ROUNDS)]
    return median(first for first, _ in rounds), median(second for _, second in rounds)


def _seconds(work: Callable[[], None], number: int) -> float:
    begun = time.perf_counter()
    for _ in range(number):
        work()
    return (time.perf_counter() - begun) / number
