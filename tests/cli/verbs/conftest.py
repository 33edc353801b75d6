"""A fake server, and the real program beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.flight.records import as_line
from midflight.protocol.job import JobSpec
from midflight.rundir import RunDir
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena, Done, run_program
from tests.flight.test_plan import FLIGHT


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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """One that has a record, and the folder that verbs are typed in."""
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MIDFLIGHT_LOG_FORMAT", "text")
    monkeypatch.chdir(tmp_path)
    folder = RunDir.of("mine", {"MIDFLIGHT_HOME": str(tmp_path / "home")})
    folder.create()
    folder.write_spec(JobSpec("mine", ("sh",), 1, 1, 1))
    folder.flight_log.write_text("".join(f"{as_line(record)}\n" for record in FLIGHT))
    return folder
