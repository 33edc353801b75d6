"""`midflight report`: where the page goes, and what is said where there is none."""

import errno
import os
from pathlib import Path

import pytest

from midflight.cli.main import main
from midflight.flight.records import Begun, Record, as_line
from midflight.flight.report import render
from midflight.rundir import RunDir
from tests.flight.test_plan import FLIGHT

PART = b'{"kind": "progress", "t": 31.0, "st'


def record(folder: RunDir, records: list[Record]) -> None:
    folder.flight_log.write_text("".join(f"{as_line(each)}\n" for each in records))


def test_the_report_goes_to_the_file_that_is_named(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "mine"]) == 0
    assert main(["report", "mine", "-o", "other.html"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "wrote report.html" in said.err and "wrote other.html" in said.err
    assert Path("report.html").read_text() == Path("other.html").read_text() == render(FLIGHT)


def test_the_report_on_stdout_is_the_one_in_the_file(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record(run, [Begun(0.0, "\x1b[31m<b>\u202eü", 1e9, 2, 1, 4), *FLIGHT[1:]])
    assert main(["report", "mine", "-o", "-"]) == 0
    assert main(["report", "mine"]) == 0
    assert capsys.readouterr().out == Path("report.html").read_text(encoding="utf-8")


def test_a_report_is_replaced_by_the_next_one(run: RunDir) -> None:
    Path("report.html").write_text("of last week")
    assert main(["report", "mine"]) == 0
    assert Path("report.html").read_text().startswith("<!DOCTYPE html>")
    assert Path("report.html").stat().st_mode & 0o777 == 0o644


def test_a_record_that_was_copied_is_reported_on_by_its_path(run: RunDir) -> None:
    run.flight_log.rename("copied.jsonl")
    assert main(["report", "./copied.jsonl"]) == 0
    assert Path("report.html").exists()


def test_of_a_damaged_record_what_is_left_is_reported(run: RunDir) -> None:
    whole = run.flight_log.read_bytes()
    run.flight_log.write_bytes(b'\xff\x00{"kind"\n' + whole + PART)
    assert main(["report", "mine"]) == 0
    assert Path("report.html").read_text() == render(FLIGHT)


@pytest.mark.parametrize("left", [None, b"", b'\xff\x00{"kind"\n[[[[', PART])
def test_a_run_without_a_record_is_said_to_have_none(
    run: RunDir, left: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run.flight_log.unlink()
    if left is not None:
        run.flight_log.write_bytes(left)
    assert main(["report", "mine"]) == 1
    assert "there is no record of mine yet" in capsys.readouterr().err
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["mine", "-o", "report.pdf"], 2, "wanted a file that ends in .html, or - for stdout"),
        (["mine", "-o", "no/such/folder.html"], 1, "cannot write no/such/folder.html"),
        (["nobody"], 1, "no run or job is named 'nobody'; known runs: mine"),
        (["./home"], 2, "cannot read home: Is a directory"),
        (["Not A Name"], 2, "a run's name has"),
    ],
)
def test_what_cannot_be_reported_is_said_in_one_line(
    run: RunDir, words: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words]) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert complaint in said.err


def test_a_full_disk_leaves_the_last_report_as_it_was(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("report.html").write_text("of last week")
    monkeypatch.setattr(os, "fsync", refuse)
    assert main(["report", "mine"]) == 1
    assert "cannot write report.html: No space left on device" in capsys.readouterr().err
    assert Path("report.html").read_text() == "of last week"
    assert not list(Path().glob(".report*"))


def test_in_a_pod_the_report_goes_to_stdout_only(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIDFLIGHT_JOB_DIR", "/job")
    monkeypatch.setenv("MIDFLIGHT_STORE", "kubernetes://default/mine")
    assert main(["report", "mine"]) == 2
    said = capsys.readouterr().err
    assert "`midflight report mine -o - > report.html` brings the report to you" in said
