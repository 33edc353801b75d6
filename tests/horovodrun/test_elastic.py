"""An elastic job of horovodrun's, with Horovod's own API: one host, a death, a host that comes."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.horovodrun.shell import horovodrun
from tests.run.site import Site

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).resolve().parents[2] / "examples/10-horovod-mnist/train.py")
PATIENCE = 60.0


def test_a_job_on_one_host_loses_a_process_gets_it_back_and_grows(
    site: Site, tmp_path: Path
) -> None:
    listing = tmp_path / "hosts"
    listing.write_text("localhost:2\n")
    site.env["OMP_NUM_THREADS"] = "1"
    run = horovodrun(
        site,
        *("-np", "2", "--min-np", "1", "--max-np", "3", "--blacklist-cooldown-range", "1", "5"),
        *("--host-discovery-script", f"cat {listing}", "--output-filename", "out"),
        *(sys.executable, SCRIPT, "--epochs", "100000", "--samples", "640"),
    )
    run.says("with 2", times=5, within=PATIENCE)
    os.kill(max(site.processes(SCRIPT)), signal.SIGKILL)
    run.says("exit with status code 137.")
    run.says("with 1", within=PATIENCE)
    run.says("resized from 1 to 2", within=PATIENCE)  # the host is used again
    listing.write_text("localhost:2\n127.0.0.1:2\n")
    run.says("with 3", times=5, within=PATIENCE)  # and no more than --max-np
    run.send(signal.SIGINT)
    assert run.ends() == 130
    epochs = [int(n) for line in run.lines for n in re.findall(r"stdout>:Epoch (\d+):", line)]
    assert epochs == sorted(set(epochs)), "none was done twice"
    assert epochs[-1] <= len(epochs), "at most the one whose line died with its process is missing"
    assert sorted(path.name for path in (site.folder / "out").iterdir()) == [
        *("rank.0", "rank.1", "rank.2")
    ]
