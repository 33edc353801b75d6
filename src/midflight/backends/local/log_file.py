"""One instance's log, read over its rotated files while a keeper goes on writing it.

Entries are `TIME STREAM F text` for a line and `TIME STREAM P text` for a part of one; parts are
put together again. Only whole entries are taken, because the keeper cuts off what it could not
write to the end. A file is known by its inode: it is read to its end wherever rotation has moved
it. What is no entry (the rest of a write that a power cut has torn) is left out.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK = 256 << 10
BLOCK = 64 << 10  # when reading backwards
LONGEST_LINE = 1 << 20  # longer ones come in pieces
_TIME_LENGTH = 27
TAIL = 16 << 10  # bytes in which the last line is looked for
LONGEST_REASON = 300  # characters of it
_TRIES = 5  # a rotation may go on while its files are listed


class LogReader:
    def __init__(self, path: Path) -> None:
        """`path` is the newest file; older ones have .1, .2 and so on behind it."""
        self._path = path
        self._file: BinaryIO | None = None
        self._parts: dict[bytes, tuple[bytes, bytearray]] = {}  # of lines without an end, by stream

    def begin(self, tail: int, since: float) -> None:
        """Where to start: so many lines from the end (-1: all), but not before `since`."""
        files = _open_all(self._path)  # newest first
        try:
            start = _tail(files, tail) if tail >= 0 else _since(files, since)
            if start is not None:
                self._file, offset = start
                self._file.seek(offset)
        finally:
            for file in files:
                if file is not self._file:
                    file.close()

    def lines(self, last: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Time and text of the lines that are there and were not read yet; with `last`, of what
        has no end as well."""
        for chunk in self._chunks():
            for entry in chunk.split(b"\n"):
                yield from self._line(entry)
        if last:
            yield from ((when, bytes(text)) for when, text in self._parts.values())
            self._parts.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _line(self, entry: bytes) -> Iterator[tuple[bytes, bytes]]:
        flag = _flag(entry)
        if not flag:
            return
        when, stream, _, text = entry.split(b" ", 3)
        if flag == b"F" and stream not in self._parts:
            yield when, text
            return
        begun = self._parts.setdefault(stream, (when, bytearray()))[1]
        begun += text
        if flag == b"F" or len(begun) > LONGEST_LINE:
            del self._parts[stream]
            yield when, bytes(begun)

    def _chunks(self) -> Iterator[bytes]:
        """Whole entries, until there is nothing more for now."""
        if self._file is None:
            files = _open_all(self._path)
            if not files:
                return
            self._file = files.pop()
            for file in files:
                file.close()
        while True:
            moved = _inode(self._path) != os.fstat(self._file.fileno()).st_ino  # asked first
            data = self._file.read(CHUNK)
            whole = data.rfind(b"\n") + 1
            self._file.seek(whole - len(data), os.SEEK_CUR)
            if whole:
                yield data[: whole - 1]
            elif not moved or not self._advance():
                return

    def _advance(self) -> bool:
        """Go on with the file after this one, which nobody writes to any more."""
        assert self._file is not None
        own = os.fstat(self._file.fileno()).st_ino
        files = _open_all(self._path)  # newest first
        inodes = [os.fstat(file.fileno()).st_ino for file in files]
        place = inodes.index(own) if own in inodes else len(files)  # dropped: all are newer
        following = files[place - 1] if place else None
        for file in files:
            if file is not following:
                file.close()
        if following is None:
            return False
        self._file.close()
        self._file = following
        return True


def _flag(entry: bytes) -> bytes:
    """F or P; nothing if it is no entry."""
    flag = entry[_TIME_LENGTH + 8 : _TIME_LENGTH + 9]  # after " stdout " or " stderr "
    fits = entry[_TIME_LENGTH : _TIME_LENGTH + 4] == b" std" and entry[10:11] == b"T"
    return flag if fits and flag in (b"F", b"P") else b""


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:  # between two steps of a rotation
        return -1


def _numbers(path: Path) -> list[int]:
    """0 for the newest file, and so on."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(path.parent):
            number = entry.name.removeprefix(path.name + ".")
            if entry.name == path.name:
                found.append(0)
            elif number != entry.name and number.isdecimal():
                found.append(int(number))
    return sorted(found)


def _open_all(path: Path) -> list[BinaryIO]:
    """All its files, newest first, each once, as they were at one moment."""
    for _ in range(_TRIES):
        files: list[BinaryIO] = []
        numbers = _numbers(path)
        names = [path.with_name(f"{path.name}.{n}") if n else path for n in numbers]
        with contextlib.suppress(FileNotFoundError):
            files += (open(name, "rb") for name in names)  # noqa: SIM115 - the caller closes them
        steady = [_inode(name) for name in names] == [os.fstat(f.fileno()).st_ino for f in files]
        if steady and numbers == _numbers(path):
            return files
        for file in files:
            file.close()
    return []


def _since(files: list[BinaryIO], since: float) -> tuple[BinaryIO, int] | None:
    """The oldest file with something that is so new."""
    recent = [file for file in files if os.fstat(file.fileno()).st_mtime >= since]
    return (recent[-1], 0) if recent else (files[0], 0) if files else None


def _tail(files: list[BinaryIO], want: int) -> tuple[BinaryIO, int] | None:
    """The file and the place after the last line that is not wanted."""
    seen = 0
    first = True  # an entry, from the end: it counts even if its line has no end yet
    for file in files:
        for end, flag in _backwards(file):
            if flag == b"F" or first:
                if seen == want:
                    return file, end
                seen += 1
            first = False
    return (files[-1], 0) if files else None


def _backwards(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Where each entry ends, and its flag, from the last one on."""
    position = os.fstat(file.fileno()).st_size
    rest = b""
    while position > 0:
        step = min(BLOCK, position)
        position -= step
        block = os.pread(file.fileno(), step, position) + rest
        cut = block.find(b"\n") + 1 if position else 0  # what is before it began further up
        if position and not cut:
            rest = block
            continue
        rest = block[:cut]
        *entries, torn = block[cut:].split(b"\n")
        end = position + len(block) - len(torn)
        for entry in reversed(entries):
            if flag := _flag(entry):
                yield end, flag
            end -= len(entry) + 1


def last_line(log: Path) -> str:
    """What says most about a bad end: the last line on stderr, or else on stdout; or nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            entries = [line.split(b" ", 3) for line in file.read().split(b"\n")]
    except OSError:
        return ""
    said = [(entry[1], entry[3].strip()) for entry in entries if len(entry) == 4]
    for stream in (b"stderr", b"stdout"):
        for name, text in reversed(said):
            if name == stream and text:
                return text.decode(errors="replace")[:LONGEST_REASON]
    return ""
