"""Logs of real instances: over their rotation, and over the coming of new workers."""

import re
import subprocess

import pytest

from tests.cluster.home import SPACE, Home
from tests.run.site import eventually

pytestmark = pytest.mark.slow

LINES, WIDTH = 2500, 9000  # more than two files of 10 MiB
NUMBERED = f"seq 1 {LINES} | awk '{{printf \"%0{WIDTH}d\\n\", $1}}'"


def test_a_log_is_whole_over_its_rotation(home: Home) -> None:
    home.serve().submit(home.sleeper("s", NUMBERED, workers=1))
    eventually(lambda: home.seen("s")["status"] == "SUCCEEDED", but=lambda: str(home.job("s")))
    folder = home.state_file("s", "s-master-0").parent
    assert sorted(path.name for path in folder.glob("log*")) == ["log", "log.1", "log.2"]
    home.types("midflight logs s > out")
    lines = (home.folder / "out").read_text().splitlines()
    assert [line.lstrip("0") for line in lines] == [str(n) for n in range(1, LINES + 1)]
    assert home.types("midflight logs s --tail 1").lines == lines[-1:]


def test_following_all_instances_shows_those_that_come_later(home: Home) -> None:
    """The interpreter of each worker is made to say something, because an agent is silent."""
    command = "echo begun; until [ -e end ]; do sleep 0.05; done; echo over"
    home.serve().submit(home.elastic("e", command, env={"PYTHONPROFILEIMPORTTIME": "1"}))
    home.await_up("e", 1)
    with (home.folder / "out").open("w") as out:
        follower = subprocess.Popen(
            ["midflight", "logs", "e", "--all", "-f"], cwd=home.folder, env=home.env, stdout=out
        )
    try:
        shown = home.folder / "out"
        eventually(lambda: re.search(r"e-launcher\W.*begun", shown.read_text()))
        home.client.scale(SPACE, "e", {"to": 2, "timeout": 30})
        eventually(lambda: re.search(r"e-worker-1\W.*midflight\.agent", shown.read_text()))
        (home.folder / "end").touch()
        assert follower.wait(30) == 0
        assert re.search(r"e-launcher\W.*over", shown.read_text())
    finally:
        follower.kill()
        follower.wait(10)
