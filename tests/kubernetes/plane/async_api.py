"""A node's access to the API server: asynchronous, with kept connections and endless watches.

A node runs many pods in one thread, because the kernel ties a process's fate to the thread that
started it. So this is HTTP/1.1 on asyncio streams, for as much of it as the API server speaks.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.kubernetes.plane.api import Access, ApiError, Json, error_message

BREATH = 0.2  # seconds before an unreachable server is tried again
PATIENCE = 15.0  # seconds that one answer may take
_LINE = 16 * 1024 * 1024  # the longest event that a watch may send
_FAULTS = (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError)


class Unreachable(Exception):
    """There was no answer; it may have been carried out all the same."""


@dataclass(frozen=True)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class AsyncApi:
    def __init__(self, kubeconfig: Path) -> None:
        self.access = Access.read(kubeconfig)
        self._tls = self.access.tls()
        self._idle: list[Connection] = []

    async def call(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        """One request. A kept connection that turns out to be closed is replaced once."""
        kept = self._idle.pop() if self._idle else None
        try:
            async with asyncio.timeout(PATIENCE):
                if kept is not None:
                    try:
                        return await self._exchange(kept, method, path, body, kind)
                    except (OSError, asyncio.IncompleteReadError):
                        kept.writer.close()
                return await self._exchange(await self._connect(), method, path, body, kind)
        except _FAULTS as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error

    async def persist(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        """Again and again until the server answers."""
        while True:
            try:
                return await self.call(method, path, body, kind)
            except Unreachable:
                await asyncio.sleep(BREATH)
            except ApiError as error:
                if error.status not in (429, 500, 503, 504):
                    raise
                await asyncio.sleep(BREATH)

    async def watch(self, path: str, **query: str) -> AsyncIterator[tuple[str, Json]]:
        """For ever. After ('LISTED', list) the list is known to be complete."""
        while True:
            try:
                listed = await self.persist("GET", f"{path}?{urlencode(query)}")
                yield "LISTED", listed
                version = listed["metadata"]["resourceVersion"]
                async for event, item in self._follow(path, query, version):
                    yield event, item
            except _FAULTS:
                await asyncio.sleep(BREATH)

    async def _follow(
        self, path: str, query: dict[str, str], version: str
    ) -> AsyncIterator[tuple[str, Json]]:
        arguments = query | {"watch": "true", "resourceVersion": version}
        connection = await self._connect()
        try:
            await self._send(connection, "GET", f"{path}?{urlencode(arguments)}", None, "")
            status, headers = await _head(connection.reader)
            if status != 200:
                return
            buffer = b""
            async for chunk in _body(connection.reader, headers):
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # too old a version: list again
                        return
                    yield event["type"], event["object"]
        finally:
            connection.writer.close()

    async def _exchange(
        self, connection: Connection, method: str, path: str, body: Json | None, kind: str
    ) -> Json:
        async with _closed_unless_done(connection):
            await self._send(connection, method, path, body, kind)
            status, headers = await _head(connection.reader)
            content = b"".join([chunk async for chunk in _body(connection.reader, headers)])
        self._idle.append(connection)
        if status >= 400:
            raise ApiError(status, error_message(content))
        answer: Json = json.loads(content)
        return answer

    async def _send(
        self, connection: Connection, method: str, path: str, body: Json | None, kind: str
    ) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {self.access.host}:{self.access.port}",
            "Accept: application/json",
            *(f"{name}: {value}" for name, value in self.access.headers().items()),
            f"Content-Length: {len(text)}",
            *([f"Content-Type: {kind}"] if text else []),
        ]
        connection.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
        await connection.writer.drain()

    async def _connect(self) -> Connection:
        async with asyncio.timeout(PATIENCE):
            return Connection(
                *await asyncio.open_connection(
                    self.access.host, self.access.port, ssl=self._tls, limit=_LINE
                )
            )


@asynccontextmanager
async def _closed_unless_done(connection: Connection) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        connection.writer.close()
        raise


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return int(lines[0].split()[1]), headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", "0")))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
