"""What a server finds when it comes up: processes that are the same, or others, or gone.

The server is killed or away, something happens, and the next one has to find out what.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from midflight.server.folder import HELD, JOURNAL
from tests.cluster.home import SPACE, Home
from tests.run.site import eventually

pytestmark = pytest.mark.slow

UNTIL_END = "until [ -e end ]; do sleep 0.05; done; exit 7"


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_recycled_pid_is_never_touched(home: Home) -> None:
    """Its process and its keeper are gone, and their numbers belong to somebody else now."""
    home.serve().submit(home.sleeper("s"))
    home.await_up("s", 2)
    keeper, pid = home.keepers("s")["s-worker-0"], home.pids("s")["s-worker-0"]
    home.kill_server()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: is_gone(keeper) and is_gone(pid))
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        path = home.state_file("s", "s-worker-0")
        state = {**json.loads(path.read_text()), "keeper_pid": stranger.pid, "pid": stranger.pid}
        path.write_text(json.dumps(state))
        home.serve()
        eventually(lambda: home.seen("s")["status"] == "FAILED")
        assert "its keeper was killed" in home.seen("s")["reason"]
        home.client.delete(SPACE, "s")
        eventually(lambda: home.job("s") is None)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(10)


@pytest.mark.parametrize("server", ["up", "down"])
def test_a_keeper_that_was_killed_is_replaced_with_its_instance(home: Home, server: str) -> None:
    home.serve().submit(home.elastic("e", workers=2))
    home.await_up("e", 2)
    keeper, pids = home.keepers("e")["e-worker-1"], home.pids("e")
    if server == "down":
        home.kill_server()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: is_gone(pids["e-worker-1"]))
    home.serve()
    eventually(lambda: home.is_up("e", 2) and home.pids("e") != pids)
    home.runs_what_it_says("e")
    restarts = {i["name"]: i["restarts"] for i in home.seen("e")["instances"]}
    assert restarts == {"e-launcher": 0, "e-worker-0": 0, "e-worker-1": 1}
    assert home.pids("e")["e-worker-0"] == pids["e-worker-0"]


def test_what_ended_while_there_was_no_server_is_told_as_it_was(home: Home) -> None:
    home.serve().submit(home.sleeper("s", UNTIL_END))
    home.await_up("s", 2)
    home.kill_server()
    (home.folder / "end").touch()
    paths = [home.state_file("s", name) for name in ("s-master-0", "s-worker-0")]
    eventually(lambda: all('"code": 7' in path.read_text() for path in paths))
    ended = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    time.sleep(1.1)  # times are shown in whole seconds
    home.serve()
    job = home.seen("s")
    assert job["status"] == "FAILED"
    assert [i["exitCode"] for i in job["instances"]] == [7, 7]
    assert all((i["endTime"] or "")[:19] <= ended for i in job["instances"]), job["instances"]


def test_a_second_server_leaves_the_first_one_and_its_jobs_alone(home: Home) -> None:
    home.serve().submit(home.sleeper("s"))
    home.await_up("s", 2)
    first, keepers = home.server(), home.keepers("s")
    second = subprocess.run(
        [sys.executable, "-P", "-m", "midflight.server"],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode == HELD
    assert f"process id {first}" in second.stderr
    assert home.server() == first
    assert home.is_up("s", 2)
    assert home.keepers("s") == keepers


def test_commands_at_once_after_a_kill_start_one_server(home: Home) -> None:
    home.serve().submit(home.sleeper("s"))
    home.await_up("s", 2)
    keepers = home.keepers("s")
    home.kill_server()
    home.types("for n in 1 2 3 4; do midflight get s >/dev/null & done; wait")
    assert home.server()
    assert home.is_up("s", 2)
    assert home.keepers("s") == keepers


def test_what_the_journal_does_not_know_is_ended_and_removed(home: Home) -> None:
    """As after a crash between the end of a job in the journal and the end of its folder."""
    client = home.serve()
    client.submit(home.sleeper("s"))
    client.submit(home.sleeper("kept"))
    home.await_up("s", 2)
    home.await_up("kept", 2)
    home.kill_server()
    with closing(sqlite3.connect(home.home / JOURNAL)) as journal, journal:
        journal.execute("DELETE FROM jobs WHERE key = ?", (f"{SPACE}/s",))
    assert len(home.keepers("s")) == 2
    home.serve()
    eventually(lambda: not home.keepers("s") and not home.job_folder("s").exists())
    home.client.submit(home.sleeper("s"))  # its name is free
    home.await_up("s", 2)
    assert home.is_up("kept", 2)
