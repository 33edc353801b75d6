"""Nothing stays stopped, and no disk stays full, however whoever did it has ended."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.chaos import disk
from midflight.chaos.processes import Guard, Handle, coordinator_of, is_member
from midflight.rundir import RunDir
from tests.run.site import eventually

STOPPER = """
import sys, time
from midflight.chaos.processes import Guard, Handle
with Guard().stopped(Handle(int(sys.argv[1]))):
    print("stopped", flush=True)
    time.sleep(600)
"""
FILLER = """
import sys, time
from pathlib import Path
from midflight.chaos import disk
with disk.filled(Path(sys.argv[1]), 1 << 30):
    print("full", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a small disk can only be made by root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def free(folder: Path) -> int:
    return os.statvfs(folder).f_bfree


def kill_once_it_has_begun(code: str, argument: object) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(argument)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)


def test_a_process_is_stopped_for_a_while_only(sleeper: int) -> None:
    guard = Guard()
    try:
        with pytest.raises(RuntimeError), Handle(sleeper) as handle, guard.stopped(handle) as alive:
            assert alive
            eventually(lambda: state(sleeper) == "T")
            raise RuntimeError("something went wrong meanwhile")
        eventually(lambda: state(sleeper) == "S")
    finally:
        guard.close()


def test_a_stopped_process_goes_on_when_its_stopper_is_killed(sleeper: int) -> None:
    kill_once_it_has_begun(STOPPER, sleeper)
    eventually(lambda: state(sleeper) == "S")


def test_a_large_disk_is_never_filled(tmp_path: Path) -> None:
    assert "never written" in disk.objection(tmp_path, limit=0)
    assert disk.objection(tmp_path, limit=1 << 60) == ""


def test_a_small_disk_is_full_for_a_while_only(small_disk: Path) -> None:
    before = free(small_disk)
    with disk.filled(small_disk, 1 << 30) as words:
        assert words == "the disk was full, with 4 MiB of it taken"
        assert free(small_disk) == 0
        assert list(small_disk.iterdir()) == []
    assert free(small_disk) == before


def test_no_more_than_the_limit_is_written(small_disk: Path) -> None:
    with disk.filled(small_disk, 1 << 20):
        assert free(small_disk) > 0


def test_a_disk_has_room_again_when_whoever_filled_it_is_killed(small_disk: Path) -> None:
    before = free(small_disk)
    kill_once_it_has_begun(FILLER, small_disk)
    eventually(lambda: free(small_disk) == before)


def test_a_process_that_no_agent_of_the_run_has_started_is_not_its_member(
    sleeper: int, tmp_path: Path
) -> None:
    folder = RunDir(tmp_path)
    assert not is_member(sleeper, folder)
    assert not is_member(1, folder)
    assert coordinator_of(folder) is None
