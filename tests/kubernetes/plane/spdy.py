"""A remote command over SPDY/3.1, which older kubectl speak: one stream for each channel.

As much of it as they use, on the serving side: they open the streams, say in a header what each is
for, and neither side limits the flow.
"""

import asyncio
import struct
import zlib
from collections.abc import Iterable

from tests.kubernetes.plane.channels import ERROR, RESIZE, STDERR, STDIN, STDOUT, chosen

_KINDS = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
_SYN_STREAM, _SYN_REPLY, _PING, _GOAWAY = 1, 2, 6, 7
_CONTROL = 1 << 31
_VERSION = 3
_FIN = 1
_LARGEST = (1 << 24) - 1  # bytes in one frame
# The dictionary with which SPDY/3 compresses headers: words with their lengths, then loose text.
_WORDS = (
    "options,head,post,put,delete,trace,accept,accept-charset,accept-encoding,accept-language,"
    "accept-ranges,age,allow,authorization,cache-control,connection,content-base,content-encoding,"
    "content-language,content-length,content-location,content-md5,content-range,content-type,date,"
    "etag,expect,expires,from,host,if-match,if-modified-since,if-none-match,if-range,"
    "if-unmodified-since,last-modified,location,max-forwards,pragma,proxy-authenticate,"
    "proxy-authorization,range,referer,retry-after,server,te,trailer,transfer-encoding,upgrade,"
    "user-agent,vary,via,warning,www-authenticate,method,get,status,200 OK,version,HTTP/1.1,url,"
    "public,set-cookie,keep-alive,origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    "Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in _WORDS.split(","))
    + _TEXT.encode()
)


class Spdy:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._channels: dict[int, int] = {}  # by stream
        self._inflate = zlib.decompressobj(zdict=_DICTIONARY)
        self._deflate = zlib.compressobj(zdict=_DICTIONARY)

    async def opened(self, wanted: Iterable[int]) -> None:
        """Until the caller has opened all of its streams, before which it sends nothing else."""
        while not set(wanted) <= set(self._channels.values()):
            await self._next()

    async def receive(self) -> tuple[int, bytes] | None:
        while (piece := await self._next()) is None:
            pass
        return piece

    async def send(self, channel: int, data: bytes) -> None:
        await self._data(channel, 0, data)

    async def finish(self) -> None:
        for channel in list(self._channels.values()):
            await self._data(channel, _FIN, b"")

    async def _data(self, channel: int, flags: int, data: bytes) -> None:
        streams = {number: stream for stream, number in self._channels.items()}
        if channel in streams:
            self._writer.write(struct.pack(">II", streams[channel], flags << 24 | len(data)) + data)
            await self._writer.drain()

    async def _next(self) -> tuple[int, bytes] | None:
        """Handles one frame; None unless it is a piece of a channel."""
        first, second = struct.unpack(">II", await self._reader.readexactly(8))
        flags, size = second >> 24, second & _LARGEST
        body = await self._reader.readexactly(size)
        if not first & _CONTROL:
            known = first in self._channels and (body or flags & _FIN)
            return (self._channels[first], body) if known else None
        kind = first & 0xFFFF
        if kind == _GOAWAY:
            raise ConnectionResetError("the caller says that it goes away")
        if kind == _SYN_STREAM:
            await self._open(body)
        elif kind == _PING:
            await self._control(_PING, body)
        return None

    async def _open(self, body: bytes) -> None:
        (stream,) = struct.unpack_from(">I", body)
        headers = _headers(self._inflate.decompress(body[10:]))
        self._channels[stream] = _KINDS[headers["streamtype"]]
        none = self._deflate.compress(struct.pack(">I", 0))
        none += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._control(_SYN_REPLY, struct.pack(">I", stream) + none)

    async def _control(self, kind: int, body: bytes) -> None:
        head = struct.pack(">II", _CONTROL | _VERSION << 16 | kind, len(body))
        self._writer.write(head + body)
        await self._writer.drain()


async def accept(
    headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Spdy:
    protocol = chosen(headers.get("x-stream-protocol-version", "")) or ""
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: SPDY/3.1",
        "Connection: Upgrade",
        f"X-Stream-Protocol-Version: {protocol}",
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()
    return Spdy(reader, writer)


def _headers(block: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", block)
    at, found = 4, []
    for _ in range(2 * count):
        (size,) = struct.unpack_from(">I", block, at)
        found.append(block[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return {name.lower(): value for name, value in zip(found[::2], found[1::2], strict=True)}
