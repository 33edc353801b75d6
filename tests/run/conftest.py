"""The site fixture: nothing that was started may be left when a test ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.site import Site, eventually


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path)
    try:
        yield place
        eventually(lambda: not place.processes(), within=1.0, but=place.processes)
    finally:
        place.kill_everything()
