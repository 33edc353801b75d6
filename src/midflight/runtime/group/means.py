"""What members log, averaged over the world: at which steps, and how.

A mean needs all members, and `job.log` is called in every step, so a step in which they meet has to
be known to all beforehand. It is: the first one in a new world, and from then on as many steps
later as rank 0 counts in the time between two lines. In all other steps nothing is sent.
"""

import hashlib
import struct
import time
from collections.abc import Mapping, Sequence

from midflight.runtime.group.process_group import Group

MOST = 30  # numbers in one line; whatever a member logs, it sends so many
LONGEST = 1 << 20  # steps between two lines


class Means:
    def __init__(self, seconds: float) -> None:
        """`seconds`: about so long from one line to the next."""
        self._seconds = seconds
        self._generation = -1
        self._next = 0  # the step in which the members meet again
        self._last = (0, 0.0)  # the step and time of the last line

    def are_due(self, generation: int, step: int) -> bool:
        return generation != self._generation or step >= self._next

    def take(
        self, group: Group, step: int, numbers: Mapping[str, float], weight: int
    ) -> dict[str, float]:
        """The means over all members that log the same names, each with its weight.

        Every member has to call it, at the same step.
        """
        mine = [self._interval(step), _mark(numbers), weight, *_as_bits([*numbers.values()])]
        answers = group.gather(mine)
        self._generation, self._next = group.generation, step + answers[0][0]
        self._last = (step, time.monotonic())
        like = [answer for answer in answers if answer[1] == mine[1]]
        weights = [float(answer[2]) for answer in like]
        if not any(weights):
            weights = [1.0] * len(like)
        columns = zip(*(_from_bits(answer[3:], len(numbers)) for answer in like), strict=True)
        return {name: _mean(column, weights) for name, column in zip(numbers, columns, strict=True)}

    def _interval(self, step: int) -> int:
        """In steps; rank 0's counts."""
        before, at = self._last
        passed = time.monotonic() - at
        if not 0 < before < step or passed <= 0:
            return 1
        return max(1, min(LONGEST, round((step - before) * self._seconds / passed)))


def _mean(numbers: Sequence[float], weights: Sequence[float]) -> float:
    """A member without weight has no part in it, not even with a NaN."""
    parts = [n * w for n, w in zip(numbers, weights, strict=True) if w]
    return sum(parts) / sum(weights)


def _mark(names: Mapping[str, float]) -> int:
    digest = hashlib.blake2b("\n".join(names).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _as_bits(numbers: Sequence[float]) -> list[int]:
    padded = [*numbers, *[0.0] * (MOST - len(numbers))]
    return list(struct.unpack(f"{MOST}q", struct.pack(f"{MOST}d", *padded)))


def _from_bits(bits: Sequence[int], count: int) -> tuple[float, ...]:
    return struct.unpack(f"{MOST}d", struct.pack(f"{MOST}q", *bits))[:count]
