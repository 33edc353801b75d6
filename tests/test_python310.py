"""What is provided to images runs on Python 3.10; Midflight is installed on 3.11 or later."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from midflight import provide
from midflight.async_timeout import Timeout
from midflight.python310 import OLDEST, RUN_MODULE
from midflight.shims import BIN
from midflight.shims.python import sitecustomize
from tests.pythons import find_python

OLD = ".".join(map(str, OLDEST))
# In one piece: torchrun's members share a standard output.
SCRIPT = """import os, sys
os.write(1, f"{sys.version_info[:2]} {os.environ['RANK']} {os.environ['WORLD_SIZE']}\\n".encode())
"""


@pytest.mark.parametrize(
    "words",
    [
        ["midflight", "run", "-np", "2", "--", "python3", "train.py"],
        ["torchrun", "--standalone", "--nproc-per-node=2", "train.py"],
    ],
    ids=["run", "torchrun"],
)
def test_an_image_with_the_oldest_python_launches_a_run_of_two_members(
    words: list[str], tmp_path: Path
) -> None:
    """Launcher, coordinator, agent and members are processes of that Python."""
    python = find_python(OLD) or pytest.skip(f"there is no Python {OLD} here")
    provide.provide(tmp_path / "midflight")
    (tmp_path / "train.py").write_text(SCRIPT)
    path = [str(python.parent), str(tmp_path / "midflight" / "bin"), os.defpath]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        env={
            "HOME": str(tmp_path),
            "MIDFLIGHT_HOME": str(tmp_path / "home"),
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(tmp_path / "midflight"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in ("0", "1"):
        assert f"{OLDEST} {rank} 2" in done.stdout


def test_a_file_in_the_current_folder_is_not_taken_for_a_module(tmp_path: Path) -> None:
    for name in ("runpy", "json", "midflight"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    words = [sys.executable, "-c", RUN_MODULE, "midflight.agent", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_of_old_names_start_in_the_same_way() -> None:
    for script in Path(BIN).iterdir():
        assert f'-c "{RUN_MODULE}" \\\n  midflight.' in script.read_text(), script
    assert sitecustomize.RUN_MODULE == RUN_MODULE  # it cannot import the other
    assert not re.search(r"[$`\"\\]", RUN_MODULE), "a shell would read it in another way"


# --- its timeout ----------------------------------------------------------------------------------


def test_what_takes_too_long_ends_with_a_timeout() -> None:
    async def wait(seconds: float) -> None:
        async with Timeout(seconds):
            await asyncio.Event().wait()

    for seconds in (0.01, 0, -1):
        with pytest.raises(TimeoutError):
            asyncio.run(wait(seconds))


def test_what_is_in_time_is_not_disturbed_later() -> None:
    async def play() -> str:
        async with Timeout(0.01):
            pass
        async with Timeout(None):
            await asyncio.sleep(0.05)
        return "done"

    assert asyncio.run(play()) == "done"


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def wait() -> None:
        async with Timeout(60):
            await asyncio.Event().wait()

    async def play() -> bool:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(play())
