"""A fake server, and the real program beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena, Done, run_program


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeServer]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    server = FakeServer(home)
    yield server
    server.close()


@pytest.fixture
def arena(fake: FakeServer) -> Arena:
    """Run the program, whose server is the fake one."""

    def run(*argv: str, **environment: str) -> Done:
        return run_program(fake.home, *argv, **environment)

    return run
