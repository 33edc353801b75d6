"""Looking at an address: is a coordinator there, a torchrun that could become one, or nobody?

A coordinator opens with a challenge. A torchrun that carries none says so and closes. Whoever
refuses the connection is not there; whoever says nothing may be, so that case is told apart.
"""

import asyncio
import contextlib
import enum
import struct
from dataclasses import dataclass

from midflight.errors import MidflightError
from midflight.protocol.messages import Challenge, Refused
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


async def call(address: str, patience: float) -> tuple[Answer, Line | None]:
    """Who answers there; with a line if it is a coordinator."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Answer.SILENT, None
    except OSError:
        return Answer.NOBODY, None
    answer, opening = Answer.NOBODY, b""
    # Otherwise a free port of our own range was dialled by chance from that very port.
    if writer.get_extra_info("sockname") != writer.get_extra_info("peername"):
        answer, opening = await _first_word(reader, patience)
    if answer is not Answer.COORDINATOR:
        writer.transport.abort()
        return answer, None
    tune(writer.get_extra_info("socket"))
    return answer, Line(reader, writer, opening)


async def look(address: str, patience: float = 1.0) -> Answer:
    answer, line = await call(address, patience)
    if line is not None:
        line.writer.transport.abort()
    return answer


async def _first_word(reader: asyncio.StreamReader, patience: float) -> tuple[Answer, bytes]:
    try:
        async with asyncio.timeout(patience):
            head = await reader.readexactly(_HEAD)
            body = await reader.readexactly(body_length(head, HANDSHAKE_LIMIT))
    except TimeoutError:
        return Answer.SILENT, b""
    except (OSError, asyncio.IncompleteReadError, MidflightError):
        return Answer.NOBODY, b""
    with contextlib.suppress(MidflightError):
        word = decode_body(body)
        if isinstance(word, Challenge):
            return Answer.COORDINATOR, head + body
        if isinstance(word, Refused):
            return Answer.STANDBY, b""
    return Answer.NOBODY, b""
