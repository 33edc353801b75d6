"""A node's HTTPS endpoint, for the API server: the logs of containers, and programs run in them.

Requests come as a kubelet gets them: /containerLogs/NAMESPACE/POD/CONTAINER and
/exec/NAMESPACE/POD/CONTAINER. Everything else is 404.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.plane.container import Container
from tests.kubernetes.plane.exec import Asked, run_in
from tests.kubernetes.plane.logs import Wish
from tests.kubernetes.plane.pod import Pod

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found"}


@dataclass(frozen=True)
class Request:
    method: str
    path: tuple[str, ...]
    query: dict[str, list[str]]
    headers: dict[str, str]

    def flag(self, name: str) -> bool:
        return self.query.get(name, [""])[0] in ("1", "true")


class Kubelet:
    def __init__(self, find: Callable[[str, str], Pod | None]) -> None:
        self._find = find

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection."""
        try:
            await self._answer(await _request(reader), reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # the caller has gone
        finally:
            writer.close()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        kind = request.path[0] if request.path else ""
        if kind not in ("containerLogs", "exec") or len(request.path) < 4:
            return await _refuse(writer, 404, "no such page")
        pod = self._find(request.path[1], request.path[2])
        container = pod.find(request.path[-1]) if pod else None
        if container is None:
            return await _refuse(writer, 404, f"no container {'/'.join(request.path[1:])} here")
        if kind == "containerLogs":
            return await _send_logs(container, request, writer)
        asked = Asked(
            command=tuple(request.query.get("command", [])),
            stdin=request.flag("input"),
            stdout=request.flag("output"),
            stderr=request.flag("error"),
            terminal=request.flag("tty"),
        )
        if container.pid is None or container.program is None:
            return await _refuse(writer, 400, f"container {container.name} is not running")
        await run_in(container.pid, container.program, asked, request.headers, (reader, writer))


async def _request(reader: asyncio.StreamReader) -> Request:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines[1:] if line):
        key = name.strip().lower()
        headers[key] = f"{headers[key]},{value.strip()}" if key in headers else value.strip()
    url = urlsplit(target)
    return Request(
        method=method,
        path=tuple(url.path.strip("/").split("/")),
        query=parse_qs(url.query, keep_blank_values=True),
        headers=headers,
    )


async def _send_logs(container: Container, request: Request, writer: asyncio.StreamWriter) -> None:
    between_runs = "waiting" in container.status.state  # then the last one is the previous one
    which = -2 if request.flag("previous") and not between_runs else -1
    if len(container.logs) < -which:
        return await _refuse(writer, 400, _no_log(container, request))
    wish = Wish.read({name: values[0] for name, values in request.query.items()})
    writer.write(_head(200, "Content-Type: text/plain", "Transfer-Encoding: chunked"))
    await writer.drain()
    async for text in container.logs[which].read(wish):
        writer.write(b"%x\r\n%b\r\n" % (len(text), text))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _no_log(container: Container, request: Request) -> str:
    """In the words of a kubelet, which clients show."""
    pod = request.path[2]
    if request.flag("previous"):
        return f'previous terminated container "{container.name}" in pod "{pod}" not found'
    reason = container.status.state.get("waiting", {}).get("reason", "ContainerCreating")
    return f'container "{container.name}" in pod "{pod}" is waiting to start: {reason}'


async def _refuse(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    body = message.encode()
    writer.write(_head(status, "Content-Type: text/plain", f"Content-Length: {len(body)}") + body)
    await writer.drain()


def _head(status: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *headers, "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
