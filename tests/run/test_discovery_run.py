"""Runs with a discovery script: hosts appear and vanish while the job lives."""

import signal
from pathlib import Path

import pytest

from tests.run.scripts import RANK, WAIT, python
from tests.run.site import Site, eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("exit 3", "ended with exit code 3"),
        ("no-such-script", "ended with exit code 127"),
        ("echo 'what a: mess'", "printed something other than hosts"),
    ],
)
def test_a_script_that_fails_at_the_start_ends_the_run_with_1(
    site: Site, script: str, complaint: str
) -> None:
    run = site.launch("--name", "x", "--host-discovery-script", script, "--", *python(RANK))
    assert run.ends() == 1
    assert len(run.lines) == 1
    assert complaint in run.lines[0]


def test_hosts_come_and_go_with_what_the_script_says(site: Site, tmp_path: Path) -> None:
    listing = tmp_path / "hosts"
    listing.write_text("localhost:1\n")
    run = site.launch(
        *("--name", "demo", "-np", "2", "--min-np", "1", "--start-timeout", "0.5"),
        *("--host-discovery-script", f"cat {listing}", "--", *python(WAIT)),
    )
    run.says("up")
    listing.write_text("localhost:1\n127.0.0.1:1\n")
    eventually(lambda: len(site.members(WAIT)) == 2)
    listing.unlink()
    run.says("keeping the hosts that it named before")
    listing.write_text("localhost:1\n")
    eventually(lambda: len(site.processes("midflight.agent")) == 1)
    eventually(lambda: len(site.members(WAIT)) == 1)
    run.send(signal.SIGINT)
    assert run.ends() == 130
