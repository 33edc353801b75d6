"""A reader that does not read: lines are dropped and counted, and the job goes on."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from midflight.deadlines import LINE_SILENCE
from tests.run.scripts import python
from tests.run.site import Site

pytestmark = pytest.mark.slow

UNREAD_SECONDS = 2 * LINE_SILENCE + 2.0  # after which everybody would have hung up
# Prints long lines without a pause until a file is there.
CHATTER = """
import os, sys
number = 0
while not os.path.exists(sys.argv[1]):
    for number in range(number + 1, number + 50):
        print(number, 'x' * 4000, flush=True)
print('the last line of rank', os.environ['RANK'])
"""


@pytest.fixture
def launcher(site: Site) -> Iterator["subprocess.Popen[str]"]:
    """Its output is a pipe that nobody reads yet."""
    words = ("--name", "demo", "-np", "2", "--", *python(CHATTER, "released"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "midflight.run", *words],
        cwd=site.folder,
        env=site.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        yield process
        process.kill()


def test_a_reader_that_stops_for_a_while_costs_lines_and_not_the_job(
    site: Site, launcher: "subprocess.Popen[str]"
) -> None:
    assert launcher.stdout is not None
    launcher.stdout.readline()  # it has begun
    time.sleep(UNREAD_SECONDS)  # it is the time itself that does the harm
    status = site.status("demo")
    assert [host["connected"] for host in status["hosts"]] == [True]
    (site.folder / "released").touch()
    lines = launcher.stdout.read().splitlines()
    assert launcher.wait(20.0) == 0, lines[-5:]
    ours = [line for line in lines if line.startswith("midflight: ")]
    assert any("lines were not shown: the terminal did not read them" in line for line in ours)
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:the last line of rank {rank}" in lines
