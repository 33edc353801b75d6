"""What the records of the jobs' runs add up to, without reading any line twice.

A record is followed as it grows: only what is new since the last look is read, so many bytes of one
job, and so many of all, at most. A job whose record is not read to its end yet has no totals, else
old events would look like new ones. Files are told apart by their first line, which has a time: one
that has reached its limit is renamed (`midflight/sink.py`), and a run that begins anew has another.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from midflight.flight.records import parse
from midflight.flight.totals import Totals
from midflight.sink import older

MOST_OF_ONE = 1 << 20  # bytes, at one look
MOST_OF_ALL = 4 << 20
MOST_OF_NAME = 4096  # of a first line
MOST_FILES = 4  # of one record that are remembered


class TrainingLogs:
    def __init__(self) -> None:
        self._followed: dict[str, Follower] = {}
        self._reading: asyncio.Task[dict[str, Totals]] | None = None

    async def totals(self, paths: Mapping[str, Path]) -> dict[str, Totals]:
        """By the uid of a job. Those who ask at the same time get the same answer."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self._read, dict(paths)))
        return await asyncio.shield(self._reading)

    def _read(self, paths: Mapping[str, Path]) -> dict[str, Totals]:
        """In a thread: no disk holds up the server."""
        left = MOST_OF_ALL
        known = self._followed
        self._followed = {
            uid: known.get(uid) or Follower(path) for uid, path in sorted(paths.items())
        }
        for follower in self._followed.values():
            left -= follower.look() if left > 0 else 0
        return {
            uid: follower.totals
            for uid, follower in self._followed.items()
            if follower.totals is not None
        }


@dataclass
class Follower:
    """One record; `totals` is None while there is none, or while it is not read to its end."""

    path: Path
    totals: Totals | None = None
    _so_far: Totals = field(default_factory=Totals)
    _read: dict[bytes, int] = field(default_factory=dict)  # how much of each file, by its beginning

    def look(self) -> int:
        """How many bytes were read."""
        pieces: list[Piece] = []
        for path in (older(self.path), self.path):
            at_end = all(piece.at_end for piece in pieces)
            if at_end and (piece := _next_piece(path, self._read)) is not None:
                pieces.append(piece)
        for piece in pieces:
            lines = piece.lines.decode("ascii", "replace").split("\n")
            self._so_far = self._so_far.after(parse(lines))
            self._read[piece.beginning] = self._read.pop(piece.beginning, 0) + len(piece.lines)
        self._read = dict(list(self._read.items())[-MOST_FILES:])
        complete = bool(pieces) and all(piece.at_end for piece in pieces)
        self.totals = self._so_far if complete else None
        return sum(len(piece.lines) for piece in pieces)


@dataclass(frozen=True)
class Piece:
    beginning: bytes  # of its file
    lines: bytes  # whole ones
    at_end: bool


def _next_piece(path: Path, read: Mapping[bytes, int]) -> Piece | None:
    """What comes after the part that was read; None if there is no such file, or no line in it."""
    try:
        with path.open("rb") as file:
            if (beginning := _beginning(file.read(MOST_OF_NAME))) is None:
                return None
            file.seek(read.get(beginning, 0))
            data = file.read(MOST_OF_ONE)
    except OSError:
        return None
    at_end = len(data) < MOST_OF_ONE
    end = data.rfind(b"\n") + 1
    # The last line may still be written. One that is longer than all that is read is no record.
    return Piece(beginning, data[:end] if end or at_end else data, at_end)


def _beginning(data: bytes) -> bytes | None:
    line, newline, _ = data.lstrip(b"\n").partition(b"\n")
    return line if newline or len(data) == MOST_OF_NAME else None
