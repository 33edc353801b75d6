"""A remote command over WebSocket: each message begins with the number of its channel.

As much of RFC 6455 as the clients of an API server use, on the serving side.
"""

import asyncio
import base64
import hashlib
import struct

from tests.kubernetes.plane.channels import PROTOCOLS, chosen

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_CLOSED_CHANNEL = 255  # of version 5: the next byte names a channel that has ended
_NORMAL = struct.pack(">H", 1000)


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes] | None:
        message = await self._message()
        if not message:
            return None
        if message[0] == _CLOSED_CHANNEL:
            return message[1], b""
        # An empty message would read as the end of the channel: it says nothing, so wait on.
        return (message[0], message[1:]) if len(message) > 1 else await self.receive()

    async def send(self, channel: int, data: bytes) -> None:
        await self._frame(_BINARY, bytes([channel]) + data)

    async def finish(self) -> None:
        await self._frame(_CLOSE, _NORMAL)

    async def _message(self) -> bytes | None:
        parts = []
        while True:
            first, second = await self._reader.readexactly(2)
            payload = await self._payload(second)
            kind = first & 0x0F
            if kind == _CLOSE:
                return None
            if kind == _PING:
                await self._frame(_PONG, payload)
            elif kind in (_CONTINUATION, _TEXT, _BINARY):
                parts.append(payload)
                if first & 0x80:
                    return b"".join(parts)

    async def _payload(self, second: int) -> bytes:
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
        mask = await self._reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"
        data = await self._reader.readexactly(size)
        key = int.from_bytes((mask * (size // 4 + 1))[:size])
        return (int.from_bytes(data) ^ key).to_bytes(size)

    async def _frame(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([0x80 | kind])
        if size < 126:
            head += bytes([size])
        elif size < 1 << 16:
            head += struct.pack(">BH", 126, size)
        else:
            head += struct.pack(">BQ", 127, size)
        self._writer.write(head + payload)
        await self._writer.drain()


async def accept(
    headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> WebSocket:
    """Answers the upgrade; a caller that names no protocol gets the oldest one."""
    offered = headers.get("sec-websocket-protocol", "")
    key = headers.get("sec-websocket-key", "") + _MAGIC
    token = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {token}",
        f"Sec-WebSocket-Protocol: {chosen(offered) or PROTOCOLS[-1]}",
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()
    return WebSocket(reader, writer)
