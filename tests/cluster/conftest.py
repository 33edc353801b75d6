"""A home of its own for a test; leaving it deletes the jobs and sees that nothing is left over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with Home(tmp_path) as place:
        yield place
        if not place.server():
            place.serve()  # for its jobs to be deleted by
