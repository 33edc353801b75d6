"""Lines, files and ends of processes, as horovodrun shows them."""

from pathlib import Path

import pytest

from midflight.compat.horovod.runner.options import dialect
from midflight.coordinator.output import Printer
from midflight.protocol.job import JobSpec


def printer(folder: Path | None = None, np: int = 3, log_level: str = "") -> Printer:
    habits = dialect(elastic=False, takes_all_slots=False, level=log_level)
    where = str(folder) if folder else None
    spec = JobSpec("job", ("true",), np, np, np, output_dir=where, dialect=habits)
    return Printer(spec, verbose=False)


@pytest.mark.parametrize(
    ("np", "rank", "name"),
    [(1, 0, "rank.0"), (2, 1, "rank.1"), (11, 3, "rank.03"), (3, 12, "rank.12")],
)
def test_the_files_of_a_rank_are_numbered_so_that_they_sort(
    tmp_path: Path, np: int, rank: int, name: str
) -> None:
    shown = printer(tmp_path, np)
    shown.output("m7", rank, "stderr", ["oh"], 0.0)
    shown.close()
    assert (tmp_path / name / "stderr").read_text() == "oh\n"


def test_a_process_that_takes_over_a_rank_goes_on_in_its_file(tmp_path: Path) -> None:
    shown = printer(tmp_path)
    shown.output("m1", 1, "stdout", ["first"], 0.0)
    shown.output("m4", 1, "stdout", ["second"], 0.0)
    shown.close()
    again = printer(tmp_path)  # a coordinator that was started again
    again.output("m4", 1, "stdout", ["third"], 0.0)
    again.close()
    assert (tmp_path / "rank.1" / "stdout").read_text() == "first\nsecond\nthird\n"


def test_the_prefix_and_the_file_are_those_of_the_rank_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printer(tmp_path)
    shown.output("m2", 2, "stdout", ["before"], 0.0)
    shown.output("m2", 0, "stdout", ["after"], 0.0)
    shown.close()
    assert capsys.readouterr().out == "[2]<stdout>:before\n[0]<stdout>:after\n"
    assert (tmp_path / "rank.0" / "stdout").read_text() == "after\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, ""),
        (3, "Process 1 exit with status code 3.\n"),
        (-9, "Process 1 exit with status code 137.\n"),
    ],
)
def test_the_end_of_a_process_is_told_if_it_was_a_bad_one(
    code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printer().ended("m5", 1, code)
    assert capsys.readouterr().out == line


def test_a_process_that_has_left_is_named_by_its_last_rank(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printer()
    shown.output("m5", 2, "stdout", ["x"], 0.0)
    shown.ended("m5", None, 1)
    shown.ended("m6", None, 1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Process 2 exit with status code 1.",
        "Process 6 exit with status code 1.",
    ]


def test_with_a_log_level_own_lines_look_like_those_of_logging(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for level, count in (("TRACE", 3), ("DEBUG", 3), ("INFO", 2), ("WARNING", 1), ("FATAL", 0)):
        shown = printer(log_level=level)
        shown.say("a", "debug")
        shown.say("b")
        shown.say("c", "warning")
        expected = ["DEBUG:root:a", "INFO:root:b", "WARNING:root:c"]
        assert capsys.readouterr().err.splitlines() == expected[3 - count :]


def test_in_our_own_voice_ends_are_not_told_and_files_are_the_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = JobSpec("job", ("true",), 1, 1, 1, output_dir=str(tmp_path))
    shown = Printer(spec, verbose=False)
    shown.output("m5", 1, "stdout", ["x"], 0.0)
    shown.ended("m5", 1, 1)
    shown.close()
    assert capsys.readouterr().out == "[1]<stdout>:x\n"
    assert (tmp_path / "m5" / "stdout").exists()
