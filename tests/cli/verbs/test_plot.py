"""`midflight plot`: where the picture goes, and what is said where there is none."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from midflight.cli.main import main
from midflight.rundir import RunDir


def test_the_picture_goes_to_the_file_that_is_named(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", "mine"]) == 0
    assert main(["plot", "mine", "-o", "other.svg"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "wrote flight.svg" in said.err and "wrote other.svg" in said.err
    assert Path("flight.svg").read_text() == Path("other.svg").read_text()
    assert ElementTree.parse("flight.svg").getroot().tag.endswith("svg")


def test_the_picture_goes_to_stdout(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "mine", "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<svg ")


def test_a_record_that_was_copied_is_drawn_by_its_path(run: RunDir) -> None:
    run.flight_log.rename("copied.jsonl")
    assert main(["plot", "./copied.jsonl"]) == 0
    assert Path("flight.svg").exists()


def test_a_run_without_a_record_is_said_to_have_none(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    run.flight_log.unlink()
    assert main(["plot", "mine"]) == 1
    assert "there is no record of mine yet" in capsys.readouterr().err
    assert not Path("flight.svg").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["mine", "-o", "flight.png"], 2, "wanted a file that ends in .svg, or - for stdout"),
        (["mine", "-o", "no/such/folder.svg"], 1, "cannot write no/such/folder.svg"),
        (["nobody"], 1, "no run or job is named 'nobody'"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    run: RunDir, words: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *words]) == code
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert complaint in said.err


def test_in_a_pod_the_picture_goes_to_stdout_only(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIDFLIGHT_JOB_DIR", "/job")
    monkeypatch.setenv("MIDFLIGHT_STORE", "kubernetes://default/mine")
    assert main(["plot", "mine"]) == 2
    assert "`midflight plot mine -o - > flight.svg` brings the picture" in capsys.readouterr().err
