"""Logs of instances, as people read them: all of it, the end of it, or as it grows.

Several instances are merged by time. Following looks five times a second, and goes on over
rotations, new attempts and, where `folders` grows, new instances; it ends when the job is over and
everything has been read. Files are read in a thread, so that nobody else waits.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

from midflight.backends.local.interface import LogQuery
from midflight.backends.local.log_file import LogReader
from midflight.backoff import LOOK_RARELY
from midflight.errors import NotFound

BATCH = 128 << 10


async def read(
    folders: Mapping[str, Path], query: LogQuery, over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """`folders`: instance name to its folder; without a name in the query, the first is meant."""
    merged = _Merged(_chosen(folders, query), query)
    try:
        while True:
            last = not query.follow or over()  # asked before reading: nothing comes afterwards
            lines = merged.lines(last)
            while batch := await asyncio.to_thread(_take, lines):
                yield batch
            if last:
                return
            await asyncio.sleep(LOOK_RARELY)
    finally:
        merged.close()


def _chosen(folders: Mapping[str, Path], query: LogQuery) -> Mapping[str, Path]:
    if query.all:
        return folders
    name = query.instance or next(iter(folders), "")
    if name not in folders:
        there = ", ".join(folders) or "none"
        raise NotFound(f"wanted the log of instance {name!r}; instances of this job: {there}")
    return {name: folders[name]}


def _take(lines: Iterator[bytes]) -> bytes:
    """So much as is good to send at once; nothing when there is nothing more."""
    taken = []
    size = 0
    for line in lines:
        taken.append(line)
        size += len(line)
        if size >= BATCH:
            break
    return b"".join(taken)


class _Merged:
    def __init__(self, folders: Mapping[str, Path], query: LogQuery) -> None:
        self._folders = folders
        self._query = query
        self._since = _stamp(query.since)
        self._readers: dict[str, LogReader] = {}
        self._first = True

    def lines(self, last: bool) -> Iterator[bytes]:
        """What has come since the last time; with `last`, what has no end yet as well."""
        tail = self._query.tail if self._first else -1
        self._open(tail)
        entries = heapq.merge(
            *(self._entries(name, reader, last) for name, reader in self._readers.items()),
            key=lambda entry: entry[0],
        )
        chosen = entries if tail < 0 else iter(deque(entries, maxlen=tail))
        self._first = False
        for when, name, text in chosen:
            yield self._words(when, name, text)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _open(self, tail: int) -> None:
        for name, folder in list(self._folders.items()):
            if name not in self._readers:
                self._readers[name] = LogReader(folder / "log")
                self._readers[name].begin(tail, self._query.since)

    def _entries(
        self, name: str, reader: LogReader, last: bool
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        for when, text in reader.lines(last):
            if when >= self._since:
                yield when, name.encode(), text

    def _words(self, when: bytes, name: bytes, text: bytes) -> bytes:
        prefix = b"[%s] " % name if self._query.all else b""
        date = when + b" " if self._query.timestamps else b""
        return b"%s%s%s\n" % (prefix, date, text)


def _stamp(seconds: float) -> bytes:
    """As keepers write it, so that the order of the letters is that of the times."""
    if seconds <= 0:
        return b""
    whole, micro = divmod(round(seconds * 1e6), 10**6)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)).encode() + b".%06dZ" % micro
