"""Health and metrics over HTTP: whether the operator lives, is of use, and what it does.

Anybody in the cluster may reach this port, so a request has to come in time and be short, and there
are so many connections at most. It is all that is needed: no web framework knows a header timeout.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from midflight.coordinator.admission import Strangers
from midflight.errors import UsageError

HEADER_SECONDS = 5.0  # for a request to come, and for its answer to be taken
MOST_HEADER = 8 << 10  # bytes
MOST_CONNECTIONS = 128
ACCEPTED_AT_ONCE = 16
BACKLOG = 512
_PROMETHEUS = "text/plain; version=0.0.4"


@dataclass(frozen=True)
class Answer:
    status: str
    body: str
    media_type: str = "text/plain; charset=utf-8"

    def encode(self) -> bytes:
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status}\r\ncontent-type: {self.media_type}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body


BAD = Answer("400 Bad Request", "bad request\n")


def bind(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_server(address)
    except OSError as error:
        host, port = address
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None


async def serve(
    listen: socket.socket, metrics: Callable[[], str], ready: Callable[[], bool]
) -> None:
    """Until cancelled. A standby is ready as well: it is there to take over."""

    def readiness() -> Answer:
        return (
            Answer("200 OK", "ok\n") if ready() else Answer("503 Service Unavailable", "not yet\n")
        )

    server = _Server(
        {
            "/healthz": lambda: Answer("200 OK", "ok\n"),
            "/readyz": readiness,
            "/metrics": lambda: Answer("200 OK", metrics(), _PROMETHEUS),
        }
    )
    async with await asyncio.start_server(
        server.answer, sock=listen, limit=MOST_HEADER, backlog=ACCEPTED_AT_ONCE
    ) as running:
        listen.listen(BACKLOG)
        await running.serve_forever()


class _Server:
    """One request for each connection; those that take their time make room for others."""

    def __init__(self, pages: Mapping[str, Callable[[], Answer]]) -> None:
        self._pages = pages
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
                writer.write(self._page(head).encode())
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(BAD.encode())
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            drop()
        finally:
            self._strangers.leave(caller)
            writer.close()

    def _page(self, head: bytes) -> Answer:
        words = head.split(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return BAD
        method, target, _ = words
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return Answer("404 Not Found", "not found\n")
        return page() if method == "GET" else Answer("405 Method Not Allowed", "GET only\n")
