"""Runs of KungFu's commands, each in a home of its own, with nothing left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kungfu.commands import Commands
from tests.run.site import eventually


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    try:
        yield made
        eventually(lambda: not made.processes(), within=1.0, but=made.processes)
    finally:
        made.kill_everything()
