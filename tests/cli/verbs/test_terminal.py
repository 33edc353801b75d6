"""What differs on a terminal: progress, levels, and pictures that are drawn again in place."""

import contextlib
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from midflight.protocol.views import JobView
from tests.cli import canned
from tests.cli.fake_server import FakeServer
from tests.cli.program import CODE, Arena, without_seconds

pytestmark = pytest.mark.slow


class Terminal:
    """The program on a terminal of its own."""

    def __init__(
        self, home: Path, *argv: str, columns: int = 0, more: Mapping[str, str] | None = None
    ) -> None:
        self._end, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, columns))
        environment = {**os.environ, "MIDFLIGHT_HOME": str(home), "TERM": "xterm"}
        for name in ("MIDFLIGHT_LOG_FORMAT", "MIDFLIGHT_LAYOUT", "NO_COLOR"):
            environment.pop(name, None)
        environment.update(more or {})
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

    def lines(self) -> list[str]:
        """All of them, once the program has ended."""
        with contextlib.suppress(OSError):  # EIO: nobody writes to it any more
            while piece := os.read(self._end, 4096):
                self.seen += piece.decode()
        return self.seen.replace("\r\n", "\n").splitlines()

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


# --- colours and columns --------------------------------------------------------------------------

GREEN, RED, YELLOW, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def three_jobs() -> list[JobView]:
    statuses = ("RUNNING", "FAILED", "PENDING")
    return [canned.job(status.lower(), status=status) for status in statuses]


def test_statuses_are_coloured_on_a_terminal_and_columns_stay_in_line(fake: FakeServer) -> None:
    fake.jobs = three_jobs()
    terminal = Terminal(fake.home, "list")
    lines = terminal.lines()
    assert terminal.close() == 0
    assert lines == [
        "NAME     STATUS   TRAINER  AGE  NODE",
        f"pending  {YELLOW}PENDING{PLAIN}  ETJOB    2m   127.0.1.1",
        f"failed   {RED}FAILED{PLAIN}   ETJOB    2m   N/A",
        f"running  {GREEN}RUNNING{PLAIN}  ETJOB    2m   127.0.1.1",
    ]


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        ([], {"NO_COLOR": "1"}),
        ([], {"TERM": "dumb"}),
        (["--color=never"], {}),
    ],
    ids=["NO_COLOR", "TERM=dumb", "--color=never"],
)
def test_a_terminal_without_colours_gets_none(
    flags: list[str], environment: dict[str, str], fake: FakeServer
) -> None:
    fake.jobs = three_jobs()
    terminal = Terminal(fake.home, *flags, "list", more=environment)
    assert "\x1b" not in "".join(terminal.lines())
    assert terminal.close() == 0


def test_what_is_no_terminal_has_colours_only_if_they_are_asked_for(
    fake: FakeServer, arena: Arena
) -> None:
    fake.jobs = [canned.job()]
    assert "\x1b" not in arena("list", TERM="xterm").out
    wanted = f"{GREEN}RUNNING{PLAIN}"
    assert wanted in arena("--color", "always", "list", NO_COLOR="1").out
    assert f"Status:      {wanted}\n" in arena("get", "demo", "--color=always").out
    assert f"STATUS: {wanted}\n" in arena("get", "demo", "-o=classic", "--color=always").out
    refused = arena("--color=blue", "list")
    assert (refused.code, refused.out) == (2, "")
    assert "wanted --color auto, always or never, got 'blue'" in refused.err


def test_colours_that_others_chose_do_not_pass_where_ours_do(
    fake: FakeServer, arena: Arena
) -> None:
    fake.jobs = [canned.job(reason="\x1b[31m all red\x1b[2J")]
    assert "\\x1b[31m all red\\x1b[2J" in arena("get", "demo", "--color=always").out


def test_a_table_that_is_too_wide_says_which_columns_it_left_out(fake: FakeServer) -> None:
    node = "cn-huhehaote.192.168.0.173"
    names = ("launcher", "worker-0", "worker-1")
    instances = [canned.instance(f"elastic-training-{name}", node=node) for name in names]
    fake.jobs = [canned.job("elastic-training", instances=instances)]
    terminal = Terminal(fake.home, "get", "elastic-training", "--color=never", columns=80)
    lines = terminal.lines()
    assert terminal.close() == 0
    assert max(map(len, lines)) <= 80
    begin = lines.index("Instances:")
    assert lines[begin : begin + 8] == [
        "Instances:",
        "  NAME                       STATUS   AGE  NODE",
        "  ----                       ------   ---  ----",
        f"  elastic-training-launcher  Running  13s  {node}",
        f"  elastic-training-worker-0  Running  13s  {node}",
        f"  elastic-training-worker-1  Running  13s  {node}",
        "  (not shown in 80 columns: IS_CHIEF, GPU(Requested))",
        "",
    ]


def test_a_long_message_is_wrapped_below_itself(fake: FakeServer) -> None:
    message = "a long story that is told once more " * 3
    fake.events = [canned.event(message=message.strip())]
    terminal = Terminal(fake.home, "events", columns=80)
    lines = terminal.lines()
    assert terminal.close() == 0
    assert max(map(len, lines)) <= 80 and len(lines) == 6
    begin = lines[0].index("MESSAGE")
    assert " ".join(line[begin:] for line in lines[1:]) == f"[Started] {message.strip()}"
    assert all(line[:begin].isspace() for line in lines[2:])


def test_the_older_layout_is_shown_as_it_was_however_wide(fake: FakeServer) -> None:
    fake.jobs = [canned.job()]
    terminal = Terminal(fake.home, "get", "demo", "-o", "classic", columns=40)
    assert "NAME  STATUS   TRAINER  AGE  INSTANCE       NODE" in terminal.lines()
    assert terminal.close() == 0
