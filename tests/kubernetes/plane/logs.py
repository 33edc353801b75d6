"""A container's output, kept line by line with the time of each, as `kubectl logs` wants it.

The file has one line of the container's per line: the time, F for a full line or P for a part of
one, and the text. A reader gets what is there and, if it follows, what comes until the container
ends.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class Wish:
    """What a reader asks for; None means no limit."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None  # bytes

    @classmethod
    def read(cls, query: dict[str, str]) -> "Wish":
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        return cls(
            follow=query.get("follow") in ("true", "1"),
            timestamps=query.get("timestamps") in ("true", "1"),
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            since=since,
            limit=int(query["limitBytes"]) if "limitBytes" in query else None,
        )


class Log:
    """One run of one container."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._more = asyncio.Event()  # replaced at each change, so that every waiter wakes once

    def write(self, text: bytes) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z").encode()
        lines = text.split(b"\n")
        rest = lines.pop()
        stamped = [b"%b F %b\n" % (now, line) for line in lines]
        if rest:
            stamped.append(b"%b P %b\n" % (now, rest))
        self._file.write(b"".join(stamped))
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._file.close()
        self._wake()

    def last(self, size: int) -> bytes:
        return _render(self.path.read_bytes().splitlines(), timestamps=False)[-size:]

    async def read(self, wish: Wish) -> AsyncIterator[bytes]:
        left = wish.limit
        async for text in self._texts(wish):
            piece = text if left is None else text[:left]
            left = None if left is None else left - len(piece)
            if piece:
                yield piece
            if left == 0:
                return

    async def _texts(self, wish: Wish) -> AsyncIterator[bytes]:
        with self.path.open("rb") as file:
            yield _render(_tail(_lines_since(file.read(), wish.since), wish.tail), wish.timestamps)
            while wish.follow:
                more, closed = self._more, self.closed
                if text := file.read():
                    yield _render(text.splitlines(), wish.timestamps)
                elif closed:
                    return
                else:
                    await more.wait()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()


def _lines_since(content: bytes, since: datetime | None) -> list[bytes]:
    lines = content.splitlines()
    if since is None:
        return lines
    return [line for line in lines if _time(line) >= since]


def _time(line: bytes) -> datetime:
    return datetime.fromisoformat(line.partition(b" ")[0].decode())


def _tail(lines: list[bytes], count: int | None) -> list[bytes]:
    """The last `count` lines of the container's, which may have been written in parts."""
    if count is None:
        return lines
    start = len(lines)
    for index in range(len(lines) - 1, -1, -1):
        begins = index == 0 or lines[index - 1].split(b" ", 2)[1] == b"F"
        if begins:
            if count == 0:
                break
            start, count = index, count - 1
    return lines[start:]


def _render(lines: list[bytes], timestamps: bool) -> bytes:
    rendered = []
    for line in lines:
        time, kind, text = line.split(b" ", 2)
        begin = time + b" " if timestamps else b""
        rendered.append(begin + text + (b"\n" if kind == b"F" else b""))
    return b"".join(rendered)
