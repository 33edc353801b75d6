"""Planned changes on real processes: a transaction that those in training hardly notice."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import COUNTING, Run, by_rank, check_complete, kill, ranked

pytestmark = pytest.mark.slow
FLAGS = ("--min-np", "1", "--max-np", "8", "--cooldown", "1", "10")


def newcomer(member: dict[str, Any]) -> bool:
    return member["rank"] is None and member["pid"] > 0


def test_a_job_is_made_larger_and_smaller_while_it_trains(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=2) as run:
        before = run.await_stable(2, beyond=3)
        assert run.resize("--to", "4").returncode == 0
        grown = run.await_stable(4)
        assert {m["pid"] for m in ranked(before)} <= {m["pid"] for m in ranked(grown)}
        assert run.resize("--remove", "3").returncode == 0
        shrunk = run.await_stable(1)
        assert ranked(shrunk)[0]["pid"] == by_rank(before, 0)["pid"]  # the newest leave first
        assert run.finish() == 0
        check_complete(run)
        assert shrunk["resets"] == 0


def test_a_joiner_that_dies_before_it_is_ready_fails_the_request_and_nothing_else(
    tmp_path: Path,
) -> None:
    script = ["python", str(COUNTING), "--out", str(tmp_path / "out"), "--slow-start", "600"]
    with Run(tmp_path, *FLAGS[:4], "--cooldown", "60", "60", script=script, np=2) as run:
        run.await_stable(2, beyond=3)
        request = run.begin_resize("--to", "3")
        status = run.await_status(lambda s: [m for m in s["members"] if newcomer(m)])
        kill(next(m for m in status["members"] if newcomer(m)))
        answer, _ = request.communicate(timeout=90)
        assert request.returncode == 1
        assert "SIGKILL" in answer
        after = run.progress()
        assert (after["resets"], after["generation"], len(ranked(after))) == (0, 1, 2)
        assert run.finish() == 0
        check_complete(run)


def test_a_joiner_that_is_not_ready_in_time_is_taken_back(tmp_path: Path) -> None:
    script = ["python", str(COUNTING), "--out", str(tmp_path / "out"), "--slow-start", "600"]
    with Run(tmp_path, *FLAGS[:4], "--cooldown", "60", "60", script=script, np=2) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3", "--timeout", "3")
        assert answer.returncode == 1
        assert "in time" in answer.stdout + answer.stderr
        after = run.progress()
        assert (after["resets"], after["generation"], len(ranked(after))) == (0, 1, 2)
        assert run.finish() == 0
        check_complete(run)


def test_every_old_member_can_be_replaced_rank_0_included(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=2) as run:
        before = run.await_stable(2, beyond=3)
        names = [m["name"] for m in ranked(before)]
        flags = [flag for name in names for flag in ("--remove-member", name)]
        answer = run.resize("--add", "2", *flags)
        assert answer.returncode == 0, answer.stderr
        after = run.await_stable(2)
        assert not {m["name"] for m in ranked(after)} & set(names)
        assert after["resets"] == 0
        assert run.finish() == 0
        check_complete(run)


def test_a_script_may_end_while_a_resize_is_under_way(tmp_path: Path) -> None:
    script = [
        "python", str(COUNTING), "--out", str(tmp_path / "out"),
        "--slow-start", "600", "--epochs", "2",
    ]  # fmt: skip
    with Run(tmp_path, *FLAGS[:4], script=script, np=2) as run:
        run.await_stable(2, beyond=3)
        request = run.begin_resize("--to", "3")
        run.await_status(lambda s: s["phase"] == "preparing")
        run.hurry()
        answer, _ = request.communicate(timeout=90)
        assert request.returncode == 1
        assert "finished" in answer
        assert run.wait() == 0
        check_complete(run, epochs=2)


def test_data_loader_workers_and_prefetching_lose_nothing(tmp_path: Path) -> None:
    script = ["python", str(COUNTING), "--out", str(tmp_path / "out"), "--workers", "2"]
    with Run(tmp_path, *FLAGS, script=script, np=2) as run:
        status = run.await_stable(2, beyond=3)
        assert run.resize("--to", "3").returncode == 0
        kill(by_rank(status, 1))
        run.await_status(lambda s: s["resets"] == 1 and s["phase"] == "stable")
        run.progress()
        assert run.finish() == 0
        check_complete(run)
