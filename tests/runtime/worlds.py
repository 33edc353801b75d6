"""Real groups between threads of this process, one for each member of a small world."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from midflight.runtime.group import process_group as groups
from midflight.runtime.group.process_group import Group
from tests.runtime.handing import together
from tests.runtime.keys import Keys, world


@contextmanager
def connected(size: int, generation: int = 3) -> Iterator[list[Group]]:
    """The groups of a world's members, by rank; cut at the end."""
    keys = Keys()
    members = [Group(world(size, generation), f"m{rank}", "gloo") for rank in range(size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "BUILDING_SECONDS", 0.0)  # in one process they wait for each other
        together(*(lambda member=member: member.connect(keys) for member in members))
    try:
        yield members
    finally:
        for member in members:
            member.cut()


def outcomes(*calls: Callable[[], Any]) -> list[Any]:
    """Each in its own thread: its result, or the error that it raised."""

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - it is what the test wants to see
            return error

    return together(*(lambda call=call: outcome(call) for call in calls))
