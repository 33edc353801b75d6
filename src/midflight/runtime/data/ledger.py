"""The ledger: one line per completed step and member, so that `midflight audit` can prove things.

A line says which samples of which epoch the step used, in which world, and a checksum of the
indices that this member really loaded. Lines are written out at once: a killed member's ledger is
complete up to its last step. While the disk takes nothing, lines are kept and written later: a full
disk must not stop the training, nor end the proof. Lines of other kinds tell that the members
compared their states, with which one this member came, and in what it differed; and that the job
began with a checkpoint.
"""

import contextlib
import json
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from midflight import terminal
from midflight.runtime.data.sampler import Issued

MOST_WRITTEN = 1 << 30  # bytes of one ledger, about ten million steps; the audit ends there
MOST_KEPT = 64 << 20  # bytes of lines that wait for the disk; what comes then is missing


class Compared(Protocol):
    """With which state a member came to a comparison; `state.claims.Claim` is one."""

    @property
    def progress(self) -> tuple[int, int, int]: ...
    @property
    def digest(self) -> int: ...
    @property
    def checksum(self) -> int: ...


class Ledger:
    def __init__(self, folder: str, member: str) -> None:
        self._path = Path(folder) / f"{member}.jsonl" if folder else None
        self._file: BinaryIO | None = None
        self._waiting = bytearray()
        self._full = False

    def write(self, issued: Issued, own: int, checksum: int) -> None:
        """A step was completed. `own`: how many samples this member used in it."""
        extent, seat = issued.extent, issued.seat
        sharers = "" if seat.sharers is None else f'"sharers":{seat.sharers},'
        self._add(
            f'{{"step":{extent.step},"epoch":{extent.epoch},"start":{extent.start},'
            f'"stop":{extent.stop},"generation":{seat.generation},"rank":{seat.rank},'
            f'"size":{seat.size},{sharers}"own":{own},"crc":{checksum}}}\n'
        )

    def resumed(self, step: int) -> None:
        """The job begins with a checkpoint, at that step."""
        self._add(f'{{"resumed":{step}}}\n')

    def note(
        self, when: str, generation: int, claim: Compared, differed: str = "", source: str = ""
    ) -> None:
        """The states were compared. `when`: enter or verify. `source`: whose state it took over."""
        line = {
            "compared": when,
            "generation": generation,
            "progress": claim.progress,
            "digest": f"{claim.digest:x}.{claim.checksum:x}",
            "differed": differed,
            "source": source,
        }
        self._add(json.dumps(line) + "\n")

    def _add(self, line: str) -> None:
        if self._path is None or self._full:
            return
        if len(self._waiting) < MOST_KEPT:
            self._waiting += line.encode("ascii")
        self._write_out()

    def _write_out(self) -> None:
        assert self._path is not None
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            while self._waiting:
                del self._waiting[: self._file.write(self._waiting)]
            self._full = self._file.tell() >= MOST_WRITTEN
            if self._full:
                terminal.say(
                    f"warning: {self._path} has {MOST_WRITTEN >> 20} MiB and is full; "
                    "the audit ends at this step"
                )
        except OSError:  # it is tried again with the next line
            self._close_file()

    def close(self) -> None:
        if self._waiting:
            self._write_out()
        self._close_file()

    def _close_file(self) -> None:
        """A network's file system may say only here that it has no room; training goes on."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def checksum(indices: tuple[int, ...], before: int = 0) -> int:
    return zlib.crc32(",".join(map(str, indices)).encode(), before)
