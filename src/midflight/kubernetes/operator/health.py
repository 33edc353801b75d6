"""The operator's health port: whether it lives, is of use, and what it does."""

import socket
from collections.abc import Callable

from midflight.monitoring import page_server
from midflight.monitoring.page_server import Answer
from midflight.monitoring.text_format import MEDIA_TYPE


async def serve(
    listen: socket.socket, metrics: Callable[[], str], ready: Callable[[], bool]
) -> None:
    """Until cancelled. A standby is ready as well: it is there to take over."""

    async def health() -> Answer:
        return Answer("200 OK", "ok\n")

    async def readiness() -> Answer:
        return await health() if ready() else Answer("503 Service Unavailable", "not yet\n")

    async def figures() -> Answer:
        return Answer("200 OK", metrics(), MEDIA_TYPE)

    pages = {"/healthz": health, "/readyz": readiness, "/metrics": figures}
    await page_server.serve(listen, pages)
