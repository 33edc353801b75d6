"""A few pages over HTTP, for probes and for Prometheus.

Anybody on the network may reach such a port, so a request has to come in time and be short, and
there are so many connections at most. It is all that is needed: no web framework knows a header
timeout. A page may be for those alone who know a token (`Authorization: Bearer TOKEN`).
"""

import asyncio
import hmac
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from midflight.coordinator.admission import Strangers
from midflight.errors import UsageError

HEADER_SECONDS = 5.0  # for a request to come, and for its answer to be taken
MOST_HEADER = 8 << 10  # bytes
MOST_CONNECTIONS = 128
ACCEPTED_AT_ONCE = 16
CHALLENGE = "www-authenticate: Bearer\r\n"
BACKLOG = 512

log = logging.getLogger("midflight.pages")


@dataclass(frozen=True)
class Answer:
    status: str
    body: str
    media_type: str = "text/plain; charset=utf-8"

    def encode(self) -> bytes:
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status}\r\ncontent-type: {self.media_type}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
            f"{CHALLENGE if self.status.startswith('401') else ''}\r\n"
        )
        return head.encode() + body


BAD = Answer("400 Bad Request", "bad request\n")
UNKNOWN = Answer("401 Unauthorized", "wanted the token: Authorization: Bearer TOKEN\n")
BROKEN = Answer("500 Internal Server Error", "an internal error; the log has the rest\n")
Page = Callable[[], Awaitable[Answer]]


def bind(address: tuple[str, int]) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        return socket.create_server(address, family=family)
    except OSError as error:
        host, port = address
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None


async def serve(listen: socket.socket, pages: Mapping[str, Page], token: bytes = b"") -> None:
    """Until cancelled. With a token, only requests that bring it along see a page."""
    server = PageServer(pages, token)
    async with await asyncio.start_server(
        server.answer, sock=listen, limit=MOST_HEADER, backlog=ACCEPTED_AT_ONCE
    ) as running:
        listen.listen(BACKLOG)
        await running.serve_forever()


class PageServer:
    """One request for each connection; those that take their time make room for others."""

    def __init__(self, pages: Mapping[str, Page], token: bytes = b"") -> None:
        self._pages = pages
        self._token = token
        self._strangers = Strangers(MOST_CONNECTIONS)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str((writer.get_extra_info("peername") or ("",))[0])
        drop = writer.transport.abort
        caller = self._strangers.admit(address, time.monotonic(), drop)
        if caller is None:
            drop()
            return
        try:
            async with asyncio.timeout(HEADER_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write((await self.page(head)).encode())
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(BAD.encode())
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            drop()
        finally:
            self._strangers.leave(caller)
            writer.close()

    async def page(self, head: bytes) -> Answer:
        lines = head.split(b"\r\n")
        words = lines[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return BAD
        if self._token and not brings(lines[1:], self._token):
            return UNKNOWN
        method, target, _ = words
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return Answer("404 Not Found", "not found\n")
        if method != "GET":
            return Answer("405 Method Not Allowed", "GET only\n")
        try:
            return await page()
        except Exception:  # a bug; the next request has its answer
            log.exception("a bug: the page %s failed", target)
            return BROKEN


def brings(headers: Sequence[bytes], token: bytes) -> bool:
    """Whether the token is among the headers, once and whole."""
    fields = [header.partition(b":") for header in headers]
    said = [value.split() for name, _, value in fields if name.lower() == b"authorization"]
    match said:
        case [[scheme, found]] if scheme.lower() == b"bearer":
            return hmac.compare_digest(found, token)
        case _:
            return False
