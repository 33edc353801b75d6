"""The record of a real run, from the first world to the end, and what is made of it."""

from pathlib import Path
from typing import Any

import pytest

from midflight.flight.records import Ended, Formed, Lost, Over, Paused, Progress, Settled
from tests.e2e.runs import Run, by_rank, check_complete, kill

pytestmark = pytest.mark.slow
FLAGS = ("--min-np", "1", "--max-np", "4", "--cooldown", "1", "10")


def records(run: Run, kind: type) -> list[Any]:
    return [record for record in run.folder.read_flight_log() if isinstance(record, kind)]


def test_a_run_leaves_a_record_of_what_happened_to_it(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=2) as run:
        run.await_stable(2, beyond=3)
        assert run.resize("--to", "3").returncode == 0
        grown = run.await_stable(3)
        at = grown["step"]
        grown = run.await_status(lambda s: s["step"] > at + 2)  # the pause is over for all
        kill(by_rank(grown, 1))
        run.await_status(
            lambda s: s["generation"] > grown["generation"] and s["step"] > grown["step"]
        )
        run.progress()
        assert run.finish() == 0
        check_complete(run)
    start, resize, failure, *_ = records(run, Formed)
    assert [each.cause for each in (start, resize, failure)] == ["start", "request", "failure"]
    assert [len(each.members) for each in (start, resize, failure)] == [2, 3, 2]
    (settled,), (lost,) = records(run, Settled), records(run, Lost)
    assert settled.ok and lost.member == "m1"
    assert "SIGKILL" in lost.reason or [e.reason for e in records(run, Ended)] == [
        "killed by SIGKILL"
    ]
    pauses = {each.generation: each for each in records(run, Paused)}
    assert pauses[resize.generation].planned and not pauses[failure.generation].planned
    assert pauses[failure.generation].pause.seconds > 0
    (over,) = records(run, Over)
    last = records(run, Progress)[-1]
    assert (over.phase, over.step, last.step) == ("succeeded", last.step, over.step)
    assert last.samples == run.epochs * 997
