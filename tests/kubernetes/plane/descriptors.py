"""Waiting for a file descriptor without holding up the loop."""

import asyncio
import os


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def read(descriptor: int, size: int) -> bytes:
    """Nothing at the end, which a terminal whose last program has ended calls an error."""
    await readable(descriptor)
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
