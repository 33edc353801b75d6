"""Waits of a group: what counts after the cut."""

import pytest

from midflight.errors import StateError, WorldChanged
from midflight.runtime.group.waits import Waits


def test_what_comes_back_after_the_cut_does_not_count() -> None:
    """An aborted NCCL transfer comes back like a whole one."""
    waits = Waits()

    def transfer() -> str:
        waits.end()
        return "torn"

    with pytest.raises(WorldChanged):
        waits.call(transfer)


def test_a_mistake_is_told_rather_than_the_cut() -> None:
    waits = Waits()

    def transfer() -> None:
        raise StateError("this cannot be packed")

    with pytest.raises(StateError):
        waits.call(transfer)
