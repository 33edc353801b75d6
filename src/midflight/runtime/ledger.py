"""The ledger: one line per completed step and member, so that `midflight audit` can prove things.

A line says which samples of which epoch the step used, in which world, and a checksum of the
indices that this member really loaded. Lines are written out at once: a killed member's ledger is
complete up to its last step.
"""

import zlib
from pathlib import Path
from typing import TextIO

from midflight.runtime.sampler import Issued


class Ledger:
    def __init__(self, folder: str, member: str) -> None:
        self._path = Path(folder) / f"{member}.jsonl" if folder else None
        self._file: TextIO | None = None

    def write(self, issued: Issued, own: int, checksum: int) -> None:
        """A step was completed. `own`: how many samples this member used in it."""
        if self._path is None:
            return
        if self._file is None:
            self._file = self._open()
            if self._file is None:
                return
        extent, seat = issued.extent, issued.seat
        try:
            self._file.write(
                f'{{"step":{extent.step},"epoch":{extent.epoch},"start":{extent.start},'
                f'"stop":{extent.stop},"generation":{seat.generation},"rank":{seat.rank},'
                f'"size":{seat.size},"own":{own},"crc":{checksum}}}\n'
            )
        except (
            OSError
        ):  # a full disk must not stop the training; the audit will say what is missing
            self._path = None

    def _open(self) -> TextIO | None:
        assert self._path is not None
        try:
            return self._path.open("a", buffering=1, encoding="ascii")
        except OSError:
            self._path = None
            return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def checksum(indices: tuple[int, ...], before: int = 0) -> int:
    return zlib.crc32(",".join(map(str, indices)).encode(), before)
