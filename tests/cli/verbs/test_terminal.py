"""What differs on a terminal: progress, levels, and pictures that are drawn again in place."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.cli import canned
from tests.cli.fake_server import FakeServer
from tests.cli.program import CODE, without_seconds

pytestmark = pytest.mark.slow


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, home: Path, *argv: str, columns: int = 0) -> None:
        self._end, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        environment = {**os.environ, "MIDFLIGHT_HOME": str(home)}
        environment.pop("MIDFLIGHT_LOG_FORMAT", None)
        command = [sys.executable, "-c", CODE, "arena", *argv]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> str:
        deadline = time.monotonic() + 60
        while text not in self.seen:
            ready, _, _ = select.select([self._end], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"waited for {text!r}, saw {self.seen!r}"
            self.seen += os.read(self._end, 4096).decode()
        return self.seen

    def close(self) -> int:
        code = self.process.wait(60)
        os.close(self._end)
        return code


def test_a_short_level_stands_before_a_line(fake: FakeServer) -> None:
    terminal = Terminal(fake.home, "data", "list")
    seen = without_seconds(terminal.until("folders as they are"))
    assert "INFO[0000] this machine has no volume claims" in seen
    assert terminal.close() == 0


def test_progress_is_drawn_after_a_second_and_wiped_out(fake: FakeServer) -> None:
    fake.jobs = [canned.job()]
    fake.operations = [canned.operation()]
    terminal = Terminal(fake.home, "scaleout", "et", "--name=demo", "--wait")
    terminal.until("has been submitted successfully")
    assert "workers, asked" in terminal.until("(1s)")
    fake.operations = [canned.operation(progress="succeeded", message="trains with 4 now")]
    assert terminal.until("now\r\n").endswith("\r\x1b[Ktrains with 4 now\r\n")
    assert terminal.close() == 0


def test_a_line_of_progress_fits_into_one_row(fake: FakeServer) -> None:
    fake.jobs = [canned.job()]
    fake.operations = [canned.operation(message="a long story " * 20)]
    terminal = Terminal(fake.home, "scaleout", "et", "--name=demo", "--wait", columns=40)
    seen = terminal.until("...")
    assert len(seen.rpartition("\x1b[K")[2]) == 39
    fake.operations = [canned.operation(progress="succeeded", message="done")]
    terminal.until("done\r\n")
    assert terminal.close() == 0


@pytest.mark.parametrize("verb", [("list", "--watch"), ("get", "demo", "-w")])
def test_jobs_are_watched_in_place_until_it_is_interrupted(
    verb: tuple[str, ...], fake: FakeServer
) -> None:
    fake.jobs = [canned.job()]
    terminal = Terminal(fake.home, *verb)
    terminal.until("RUNNING")
    fake.jobs = [canned.job(status="SUCCEEDED")]
    assert "\x1b[H\x1b[2J" in terminal.until("SUCCEEDED")
    terminal.process.send_signal(2)
    assert terminal.close() == 0


def test_top_refreshes_in_place_until_it_is_interrupted(fake: FakeServer) -> None:
    terminal = Terminal(fake.home, "top", "node", "-r")
    terminal.until("0/4 (0%)")
    fake.nodes = [canned.node("node-1", allocatedGPUs=4)]
    assert "\x1b[H\x1b[2J" in terminal.until("4/4 (100%)")
    terminal.process.send_signal(2)
    assert terminal.close() == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["wait", "demo"], "no longer waiting for demo; it is not affected"),
        (
            ["submit", "et", "--name=new", "--wait", "sh"],
            "The Job new goes on; `arena delete new` would end it",
        ),
        (
            ["scaleout", "et", "--name=demo", "--wait"],
            "The scaleout job demo-1599557124 goes on; `arena get demo` shows it",
        ),
        (
            ["delete", "demo"],
            "The training job demo is being deleted, and will be gone in a moment",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_ctrl_c_ends_the_waiting_only_and_says_so(
    argv: list[str], said: str, fake: FakeServer
) -> None:
    fake.jobs = [canned.job(), canned.job("new")]
    fake.operations = [canned.operation()]
    fake.waits = True
    terminal = Terminal(fake.home, *argv)
    terminal.until("(1s)")
    terminal.process.send_signal(2)
    assert terminal.until(f"{said}\r\n").endswith(f"INFO[0001] {said}\r\n")
    fake.waits = False
    fake.operations = [canned.operation()]
    assert terminal.close() == 130
