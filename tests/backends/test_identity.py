"""Which process is meant, and who carries a mark."""

import os
import subprocess
import uuid

import pytest

from midflight.backends.local import keeper
from midflight.backends.local.identity import boot, is_same, kill_marked, start_time
from tests.backends.instances import PATIENCE

pytestmark = pytest.mark.slow  # real processes


def test_a_process_is_the_same_as_long_as_it_lives() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    began = start_time(process.pid)
    assert is_same(process.pid, began)
    assert is_same(process.pid, began, boot())
    assert not is_same(process.pid, began, "another boot")
    assert not is_same(process.pid, str(int(began) + 1))
    assert not is_same(process.pid, "")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_same(process.pid, began), "what is left of it counts as gone"
    process.wait(PATIENCE)
    assert start_time(process.pid) == ""


@pytest.mark.parametrize("pid", [-5, 0, 1])
def test_nobody_means_everybody_or_the_first_process(pid: int) -> None:
    assert start_time(pid) == ""
    keeper.send(pid, 9)
    keeper.send(pid, 9, group=True)


def test_who_carries_a_mark_is_killed_and_nobody_else() -> None:
    mark = uuid.uuid4().hex
    others = {"PATH": os.environ["PATH"]}
    words = ["sh", "-c", "setsid sleep 1000 & wait"]
    carrier = subprocess.Popen(words, env={**others, keeper.MARK: mark})
    stranger = subprocess.Popen(["sleep", "1000"], env={**others, keeper.MARK: mark + "0"})
    try:
        while len(keeper.marked(mark)) < 2:
            assert carrier.poll() is None
        assert kill_marked(mark) >= 2
        assert carrier.wait(PATIENCE) == -9
        assert kill_marked(mark) == 0
        assert kill_marked("") == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(PATIENCE)
