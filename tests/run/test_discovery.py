"""The discovery script by itself: real shells, short limits."""

import asyncio
import time
from pathlib import Path

import pytest

from midflight.errors import JobFailed
from midflight.run.discovery import Discovery
from midflight.run.hosts import Hosts
from tests.run.site import eventually


def look(script: str, limit: float = 10.0) -> Hosts:
    return asyncio.run(Discovery(script, default_slots=2, limit=limit).look())


def test_a_script_names_hosts_line_by_line() -> None:
    assert look("echo a:1; echo; echo b") == {"a": 1, "b": 2}


def test_a_script_may_say_that_there_is_no_host_now() -> None:
    assert look("true") == {}


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo a:1; exit 4", "ended with exit code 4"),
        ("echo first >&2; echo second >&2; exit 1", "ended with exit code 1: second"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("echo 'Traceback (most recent call last):'", "printed something other than hosts"),
        ("printf '\\377\\376'", "printed something that is not text"),
        ("yes host", "printed more than 1048576 bytes"),
    ],
)
def test_a_script_that_fails_or_prints_rubbish_is_quoted(script: str, complaint: str) -> None:
    with pytest.raises(JobFailed) as failure:
        look(script)
    assert str(failure.value).startswith(f"the host discovery script {script!r} {complaint}")


def test_a_script_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(JobFailed, match=r"did not end within 0.3 s"):
        look(f"sleep 60 & echo $! > {pid_file}; wait", limit=0.3)
    assert time.monotonic() - began < 5.0
    cmdline = Path(f"/proc/{int(pid_file.read_text())}/cmdline")
    eventually(lambda: not cmdline.exists() or not cmdline.read_bytes())
