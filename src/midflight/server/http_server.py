"""uvicorn, made still and private.

As it comes it wakes up ten times a second; here it sleeps until there is a request or an end. And
whoever connects must be this user, or root: the socket's rights say so already, the kernel's word
on who is at the other end (where it gives one) makes it certain.
"""

import asyncio
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from midflight.server.audit import refuse

log = logging.getLogger("midflight.server")

_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, cut: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=PrivateProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self.ending = asyncio.Event()
        self._cut = cut  # ends what waits

    def end(self) -> None:
        self.should_exit = True
        self.ending.set()

    async def main_loop(self) -> None:
        self.server_state.default_headers = self.config.encoded_headers
        await self.ending.wait()
        self._cut()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end)
        yield


class PrivateProtocol(H11Protocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = peer_of(transport.get_extra_info("socket"))
        if peer is None:
            return
        process, user = peer
        self.client = (str(user), process)  # for the audit trail; a unix socket has no address
        if user not in (0, os.geteuid()):
            log.warning("a connection by user %s was refused (process %s)", user, process)
            refuse(user, process)
            transport.abort()


def peer_of(connection: socket.socket) -> tuple[int, int] | None:
    """Process and user at the other end; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    found = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(found)
    return int(process), int(user)
