"""The terminal of a real process: read late, never read, closed, or in one with stderr."""

import subprocess
import sys
import time

import pytest

from midflight import terminal

IMPORT = "from midflight import terminal as t\n"
MANY = f"{IMPORT}for n in range(400): t.out([str(n) + ' ' + 'x' * 999])\n"
STUCK_SECONDS = 2 * terminal.PATIENCE + 6.0  # both streams are given up, and Python starts and ends


def start(code: str, *, together: bool = False) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if together else subprocess.PIPE,
        text=True,
    )


def test_a_reader_that_reads_gets_every_line() -> None:
    out, err = start(MANY).communicate(timeout=20.0)
    assert [line.split()[0] for line in out.splitlines()] == [str(n) for n in range(400)]
    assert err == ""


def test_a_process_whose_stdout_is_never_read_ends_all_the_same_and_says_what_was_lost() -> None:
    with start(MANY) as process:
        began = time.monotonic()
        assert process.wait(STUCK_SECONDS) == 0
        assert time.monotonic() - began >= terminal.PATIENCE
        assert process.stderr is not None
        (line,) = process.stderr.read().splitlines()
    assert line.startswith("midflight: ")
    assert line.endswith(" lines were not shown: the terminal did not read them")


def test_a_process_ends_if_neither_stream_is_read() -> None:
    with start(MANY, together=True) as process:
        assert process.wait(STUCK_SECONDS) == 0


def test_lines_of_both_streams_stay_in_order_where_they_lead_to_one_place() -> None:
    code = (
        "from midflight import terminal as t\nfor n in range(200): t.out([str(n)]); t.say(str(n))"
    )
    out, _ = start(code, together=True).communicate(timeout=20.0)
    wanted = [line for n in range(200) for line in (str(n), f"midflight: {n}")]
    assert out.splitlines() == wanted


def test_a_reader_that_has_gone_is_no_error() -> None:
    process = start(MANY)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(10.0) == 0


def test_nothing_is_written_where_stdout_was_closed_from_the_start() -> None:
    code = f"import os, sys\nos.close(1); sys.stdout = None\n{MANY}\nt.say('all is well')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "midflight: all is well\n")


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (1, "midflight: 1 line was not shown: too slow"),
        (12_345, "midflight: 12,345 lines were not shown: too slow"),
    ],
)
def test_lost_lines_are_counted_in_words(count: int, line: str) -> None:
    assert terminal.lost(count, "shown", "too slow") == line
