"""Looking at an address: is a coordinator there, a torchrun that could become one, or nobody?

A coordinator opens with a challenge. A torchrun that carries none says so, and where it is as far
as it knows, and closes. Whoever refuses the connection is not there; whoever says nothing may be,
so that case is told apart.
"""

import asyncio
import contextlib
import enum
import struct
from dataclasses import dataclass

from midflight import async_timeout
from midflight.errors import MidflightError
from midflight.protocol.messages import Challenge, JobLives, Refused
from midflight.protocol.wire import (
    HANDSHAKE_LIMIT,
    body_length,
    decode_body,
    encode_frame,
    split_address,
    tune,
)

_HEAD = struct.Struct(">I").size
NO_COORDINATOR = encode_frame(Refused("no coordinator here"))


class Answer(enum.Enum):
    COORDINATOR = "coordinator"
    STANDBY = "standby"  # a torchrun that carries none now
    NOBODY = "nobody"
    SILENT = "silent"


@dataclass(frozen=True)
class Line:
    """An open connection to a coordinator, and what was read from it already."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    opening: bytes


@dataclass(frozen=True)
class Seen:
    answer: Answer
    line: Line | None = None  # to a coordinator
    hint: str = ""  # where a standby says that the coordinator is


async def call(address: str, patience: float) -> Seen:
    """Who answers there; with a line if it is a coordinator."""
    host, port = split_address(address)
    try:
        async with async_timeout.timeout(patience):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Seen(Answer.SILENT)
    except OSError:
        return Seen(Answer.NOBODY)
    seen = Seen(Answer.NOBODY)
    # Otherwise a free port of our own range was dialled by chance from that very port.
    if writer.get_extra_info("sockname") != writer.get_extra_info("peername"):
        seen = await _first_word(reader, writer, patience)
    if seen.line is None:
        writer.transport.abort()
    else:
        tune(writer.get_extra_info("socket"))
    return seen


async def look(address: str, patience: float = 1.0) -> Seen:
    """The same, without keeping the line."""
    seen = await call(address, patience)
    if seen.line is not None:
        seen.line.writer.transport.abort()
    return seen


async def _first_word(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float
) -> Seen:
    try:
        async with async_timeout.timeout(patience):
            head = await reader.readexactly(_HEAD)
            body = await reader.readexactly(body_length(head, HANDSHAKE_LIMIT))
    except TimeoutError:
        return Seen(Answer.SILENT)
    except (OSError, asyncio.IncompleteReadError, MidflightError):
        return Seen(Answer.NOBODY)
    with contextlib.suppress(MidflightError):
        match decode_body(body):
            case Challenge():
                return Seen(Answer.COORDINATOR, Line(reader, writer, head + body))
            case Refused():
                return Seen(Answer.STANDBY)
            case JobLives(address):
                split_address(address)
                return Seen(Answer.STANDBY, hint=address)
            case _:
                pass
    return Seen(Answer.NOBODY)


def standby_word(coordinator: str | None) -> bytes:
    """What a torchrun without a coordinator says to whoever looks."""
    return encode_frame(JobLives(coordinator)) if coordinator else NO_COORDINATOR
