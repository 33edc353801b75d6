"""`midflight resize` against a coordinator that answers as told."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midflight.cli.main import main
from midflight.cli.verbs import resize
from midflight.coordinator.client import Patience
from midflight.protocol.messages import Progress, RequestEnded, ResizeRequested
from tests.cli.fake_coordinator import GONE, FakeCoordinator

Answering = Callable[..., FakeCoordinator]


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A run named demo whose coordinator gives these answers."""
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    made: list[FakeCoordinator] = []

    def make(*answers: object) -> FakeCoordinator:
        made.append(FakeCoordinator(tmp_path, "demo", answers))
        return made[-1]

    yield make
    for coordinator in made:
        coordinator.close()


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["--to", "5"], ResizeRequested(5, 0, 0, (), 60.0)),
        (["--add", "2", "--timeout", "3"], ResizeRequested(None, 2, 0, (), 3.0)),
        (["--remove", "1"], ResizeRequested(None, 0, 1, (), 60.0)),
        (
            ["--remove-member", "m1", "--remove-member", "m2", "--add", "2"],
            ResizeRequested(None, 2, 0, ("m1", "m2"), 60.0),
        ),
    ],
)
def test_what_was_asked_for_is_what_the_coordinator_hears(
    answering: Answering, arguments: list[str], request_: ResizeRequested
) -> None:
    coordinator = answering(RequestEnded(True, "done"))
    assert main(["resize", "demo", *arguments]) == 0
    heard = coordinator.hears()
    assert isinstance(heard, ResizeRequested)
    assert heard.id and request_.timeout - 3 < heard.timeout <= request_.timeout
    assert replace(heard, id="", timeout=request_.timeout) == request_


def test_progress_goes_to_stderr_and_the_outcome_to_stdout(
    answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(Progress("preparing 5 members"), RequestEnded(True, "resized from 3 to 5"))
    assert main(["resize", "demo", "--to", "5"]) == 0
    said = capsys.readouterr()
    assert said.out == "resized from 3 to 5\n"
    assert said.err == "midflight: preparing 5 members\n"


def test_a_request_that_was_not_fulfilled_is_an_error(
    answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(RequestEnded(False, "99 members would be more than --max-np 9"))
    assert main(["resize", "demo", "--to", "99"]) == 1
    assert capsys.readouterr().err == "midflight: error: 99 members would be more than --max-np 9\n"


def test_a_coordinator_that_goes_away_meanwhile_is_an_error_that_says_where_to_look(
    answering: Answering, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resize, "PATIENCE", Patience(reach=5.0, answer=0.5))
    answering(Progress("preparing 5 members"), GONE)
    assert main(["resize", "demo", "--to", "5"]) == 1
    assert "it may still be made; `midflight status demo` shows" in capsys.readouterr().err


def test_nobody_waits_who_does_not_want_to(answering: Answering) -> None:
    coordinator = answering()
    assert main(["resize", "demo", "--to", "5", "--no-wait"]) == 0
    assert coordinator.hears() == ResizeRequested(5, 0, 0, (), 60.0)
