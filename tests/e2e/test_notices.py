"""Notices: who is told to end leaves at a step boundary, and nothing is computed twice."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import Run, agents_of, by_rank, check_complete, kill, ranked

pytestmark = pytest.mark.slow
HOSTS = ("-H", "localhost:2,127.0.0.2:2", "--cooldown", "60", "60")


def on(host: str, status: dict[str, Any]) -> list[dict[str, Any]]:
    return [member for member in ranked(status) if member["host"] == host]


def settled_elsewhere(host: str, size: int) -> Any:
    return lambda s: s["phase"] == "stable" and len(ranked(s)) == size and not on(host, s)


def gone(run: Run, pid: int) -> bool:
    deadline = time.monotonic() + 30
    while pid in run.left_over() and time.monotonic() < deadline:
        time.sleep(0.05)
    return pid not in run.left_over()


def test_the_members_of_an_agent_that_is_told_to_end_leave_and_it_follows(tmp_path: Path) -> None:
    full = ("-H", "localhost:1,127.0.0.2:2", "--cooldown", "60", "60", "--min-np", "1")
    with Run(tmp_path, *full, np=3) as run:
        before = run.await_stable(3, beyond=3)
        host = by_rank(before, 0)["host"]
        leavers = {member["pid"] for member in on(host, before)}
        stayers = [m["pid"] for m in ranked(before) if m["pid"] not in leavers]
        assert leavers and stayers
        agent = agents_of(run)[host]
        os.kill(agent, signal.SIGTERM)
        after = run.await_status(settled_elsewhere(host, len(stayers)))
        assert (after["resets"], after["generation"]) == (0, 2)
        assert [member["pid"] for member in ranked(after)] == stayers
        assert gone(run, agent)
        assert not leavers & set(run.left_over())
        run.progress()
        assert host not in agents_of(run)  # it has ended with 0, and for good
        assert run.finish() == 0
        check_complete(run)
        assert "lost" not in run.output and "warning" not in run.output


def test_whoever_cannot_be_spared_is_replaced_first(tmp_path: Path) -> None:
    with Run(tmp_path, *HOSTS, "--min-np", "2", "--max-np", "2", np=2) as run:
        before = run.await_stable(2, beyond=3)
        leaver, stayer = (by_rank(before, rank)["name"] for rank in (0, 1))
        kill(by_rank(before, 0), how=signal.SIGTERM)
        after = run.await_status(
            lambda s: s["phase"] == "stable" and leaver not in [m["name"] for m in ranked(s)]
        )
        assert (after["resets"], len(ranked(after))) == (0, 2)
        assert by_rank(after, 0)["name"] == stayer
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_a_whole_world_moves_to_another_host(tmp_path: Path) -> None:
    with Run(tmp_path, *HOSTS, "--min-np", "2", "--max-np", "2", np=2) as run:
        before = run.await_stable(2, beyond=3)
        host = by_rank(before, 0)["host"]
        assert len(on(host, before)) == 2
        os.kill(agents_of(run)[host], signal.SIGTERM)
        after = run.await_status(settled_elsewhere(host, 2))
        assert after["resets"] == 0
        assert not {m["name"] for m in ranked(before)} & {m["name"] for m in ranked(after)}
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_a_notice_does_not_wait_for_a_resize_that_is_under_way(tmp_path: Path) -> None:
    with Run(tmp_path, *HOSTS, "--min-np", "1", "--max-np", "3", np=2) as run:
        before = run.await_stable(2, beyond=3)
        leaver = by_rank(before, 0)
        request = run.begin_resize("--to", "3")
        run.await_status(lambda s: s["phase"] == "preparing")
        kill(leaver, how=signal.SIGTERM)
        request.communicate(timeout=90)
        assert request.returncode == 0
        after = run.await_stable(3)
        assert after["resets"] == 0
        assert leaver["name"] not in {m["name"] for m in ranked(after)}
        assert run.finish() == 0
        check_complete(run)


def test_a_notice_that_nobody_can_follow_ends_the_job_when_it_is_over(tmp_path: Path) -> None:
    with Run(tmp_path, "--grace", "2", np=2) as run:
        run.await_stable(2, beyond=3)
        began = time.monotonic()
        os.kill(agents_of(run)["localhost"], signal.SIGTERM)
        assert run.wait() == 1
        assert 2 <= time.monotonic() - began < 30
        (error,) = (line for line in run.lines if line.startswith("midflight: error:"))
        assert "no remaining member holds the training state" in error
        assert run.left_over() == []
