"""Which columns of a table a terminal has room for: a pure decision.

A last column of sentences is wrapped. Then those are left out that are missed least, then others,
from the right; the first two stay. What is left out is for the caller to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2  # between two columns
_SENTENCES = ("COMMAND", "EFFECT", "MESSAGE", "REASON")
_LEAST = 24  # of a column of sentences
_STAY = 2
_MISSED_LEAST = (
    "IS_CHIEF",
    "ROLE",
    "GPU(Allocated)",
    "GPU(Requested)",
    "GPU(Request)",
    "TRAINER",
)


@dataclass(frozen=True)
class Fit:
    kept: tuple[int, ...]  # columns, by number
    last: int  # the width of the last of them
    left_out: tuple[int, ...]


def fit(header: Sequence[str], widths: Sequence[int], room: int) -> Fit:
    """`room`: in characters; 0: as much as is needed."""
    kept = list(range(len(header)))
    while not (last := _last(header, widths, kept, room)):
        dispensable = _dispensable(header, kept)
        if not dispensable:
            last = widths[kept[-1]]  # the terminal has to wrap it
            break
        kept.remove(dispensable[0])
    left_out = tuple(column for column in range(len(header)) if column not in kept)
    return Fit(tuple(kept), last, left_out)


def _last(header: Sequence[str], widths: Sequence[int], kept: Sequence[int], room: int) -> int:
    """How wide the last column can be; 0: too narrow, or the others leave it no room."""
    *others, last = kept
    left = room - sum(widths[column] + GAP for column in others)
    if not room or widths[last] <= left:
        return widths[last]
    return left if header[last] in _SENTENCES and left >= _LEAST else 0


def _dispensable(header: Sequence[str], kept: Sequence[int]) -> list[int]:
    """What may be left out, in that order."""
    columns = [c for c in reversed(kept) if c not in kept[:_STAY] and header[c] not in _SENTENCES]
    first = [c for name in _MISSED_LEAST for c in columns if header[c] == name]
    return [*first, *(column for column in columns if column not in first)]
