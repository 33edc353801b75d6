"""Pauses that grow, for whoever has to ask again.

Each is drawn between a half and the whole of its bound, so that many who were cut off at the same
moment do not all come back at the same moment.
"""

import random
from collections.abc import Iterator


def pauses(first: float, most: float) -> Iterator[float]:
    bound = first
    while True:
        yield random.uniform(bound / 2, bound)
        bound = min(most, bound * 2)
