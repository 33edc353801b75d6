"""Pauses that grow."""

import random
from itertools import islice

from midflight.backoff import pause, pauses


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert list(islice(pauses(0.5, 3.0), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_any_number_of_failures_gives_a_pause() -> None:
    assert pause(1.0, 60.0, 0) == 1.0
    assert pause(1.0, 60.0, 1_000_000) == 60.0


def test_jitter_stays_between_a_half_and_the_whole_of_each_pause() -> None:
    draw = random.Random(7).uniform
    for drawn, bound in zip(pauses(0.5, 3.0, draw), [0.5, 1.0, 2.0, 3.0, 3.0], strict=False):
        assert bound / 2 <= drawn <= bound
