"""The end of a run in a terminal."""

from pathlib import Path

import pytest

from midflight import terminal
from midflight.flight.records import as_line
from midflight.run.main import sum_up
from midflight.run.options import Options, parse
from tests.flight.test_plan import FLIGHT


def a_run(home: Path, *lines: str) -> Options:
    options = parse(["--name", "mine", "--", "sh"], {"MIDFLIGHT_HOME": str(home)})
    options.folder.create()
    options.folder.flight_log.write_text("".join(f"{line}\n" for line in lines))
    return options


def test_a_run_in_a_terminal_ends_with_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sum_up(a_run(tmp_path, *map(as_line, FLIGHT)), watched=True)
    terminal.drain()
    assert capsys.readouterr().err.splitlines() == [
        "midflight: 50 steps, 500 samples, 100 samples/s in 0:10",
        "midflight: goodput 45 % (start 3.0 s, pauses 530 ms, end 2.0 s)",
        "midflight: 1 change by resize: paused 30 ms",
        "midflight: 1 change by failure: paused 500 ms",
        "midflight: `midflight plot mine` draws it",
    ]


def test_nobody_is_told_who_does_not_watch_and_where_nothing_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sum_up(a_run(tmp_path, *map(as_line, FLIGHT)), watched=False)
    sum_up(a_run(tmp_path), watched=True)
    terminal.drain()
    assert capsys.readouterr().err == ""
