"""Two ranks together: each check of the program is a promise of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.horovod_tensorflow import programs
from tests.run.site import Launched, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), programs.needs_tensorflow]

PROGRAM = programs.HERE / "together.py"
CHECKS = PROGRAM.read_text().partition("CHECKS = (")[2].partition(")")[0].replace(",", "").split()


@pytest.fixture(scope="module", params=programs.AGES)
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launched]:
    """One run for all: it takes much longer to start than to do what it does."""
    site = Site(Path(tmp_path_factory.mktemp("together")))
    try:
        launched = programs.start(site, PROGRAM, "-np", "2", keras=request.param)
        launched.process.wait(programs.PATIENCE)
        yield launched
    finally:
        site.kill_everything()


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks_pass_the_check_of(check: str, run: Launched) -> None:
    run.says(f"passed: {check}", times=2)


def test_both_come_to_their_end(run: Launched) -> None:
    assert run.ends() == 0, run.lines[-50:]
