"""What a job survives, each on real processes: nobody restarts, no sample is lost or repeated."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.runs import (
    COUNTING,
    PATIENCE,
    STEPS,
    Run,
    agents_of,
    by_rank,
    check_complete,
    coordinator_of,
    kill,
    ranked,
)

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).with_name("scripts")
FLAGS = ("--min-np", "1", "--max-np", "6", "--cooldown", "60", "60")


def after_a_loss(run: Run, size: int, resets: int = 1) -> None:
    """The survivors went on; then let the job end and look at everything."""
    run.await_status(
        lambda s: s["phase"] == "stable" and s["resets"] == resets and len(ranked(s)) == size
    )
    run.progress()
    assert run.finish() == 0
    check_complete(run)
    assert "and was replaced" not in run.output  # equal members are not taken for different


def test_the_death_of_a_member_costs_the_step_in_flight(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, warm=0) as run:
        before = run.await_stable(3, beyond=3)
        kill(by_rank(before, 1))
        after_a_loss(run, 2)
        assert "lost m1: " in run.output
        assert "m1: killed by SIGKILL" in run.output


def test_a_learning_rate_that_one_member_has_changed_is_put_right_by_the_next_world(
    tmp_path: Path,
) -> None:
    script = ["python", str(SCRIPTS / "uneven.py"), str(tmp_path / "out"), "rate"]
    with Run(tmp_path, *FLAGS, script=script) as run:
        run.await_line("went on with 2 members")
        run.progress()
        assert run.finish() == 0
        assert "m0 ends with the rate 0.1" in run.output
        assert "m1 ends with the rate 0.1" in run.output
        what = "optimizer.param_groups[0].lr is 0.05 here and 0.1 there"
        assert f"the state of m1 was not that of m0, and was replaced: {what}" in run.output
        audit = run.command("audit", "job")
        assert audit.returncode == 0, audit.stdout
        assert "m1 came into generation 2 after" in audit.stdout
        assert what in audit.stdout


def test_two_members_may_die_at_once_rank_0_included(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, np=4) as run:
        before = run.await_stable(4, beyond=3)
        kill(by_rank(before, 0), by_rank(before, 2))
        run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 2)
        run.progress()
        assert run.finish() == 0
        check_complete(run)
        assert "and was replaced" not in run.output


def test_an_agent_may_die_with_all_its_members(tmp_path: Path) -> None:
    flags = (*FLAGS, "-H", "localhost:2,127.0.0.2:2")
    with Run(tmp_path, *flags, np=4) as run:
        before = run.await_stable(4, beyond=3)
        there = [m for m in ranked(before) if m["host"] == "127.0.0.2"]
        os.kill(agents_of(run)["127.0.0.2"], signal.SIGKILL)
        run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 2)
        assert not {m["pid"] for m in there} & set(run.left_over())
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_the_coordinator_may_die_and_no_member_notices(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS) as run:
        before = run.await_stable(3, beyond=3)
        first = coordinator_of(run)
        os.kill(first, signal.SIGKILL)
        after = run.await_status(
            lambda s: (
                s["phase"] == "stable"
                and s["step"] > before["step"] + 10
                and all(m["state"] == "active" for m in s["members"])
            )
        )
        assert coordinator_of(run) != first
        assert (after["generation"], after["resets"]) == (before["generation"], 0)
        assert [m["pid"] for m in ranked(after)] == [m["pid"] for m in ranked(before)]
        assert run.resize("--to", "2").returncode == 0
        assert run.finish() == 0
        check_complete(run)


def test_the_coordinator_may_be_paused_for_longer_than_its_peers_wait(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        before = run.await_stable(3)
        coordinator = coordinator_of(run)
        os.kill(coordinator, signal.SIGSTOP)
        time.sleep(8.0)  # everybody has hung up by then: that takes them 5 s
        os.kill(coordinator, signal.SIGCONT)
        after = run.progress()
        assert ranked(after) and after["resets"] == 0
        assert [m["pid"] for m in ranked(after)] == [m["pid"] for m in ranked(before)]
        assert run.finish() == 0, run.output
        check_complete(run)


def test_a_member_may_die_while_a_resize_is_under_way(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS[:4], "--cooldown", "0.2", "1", np=2) as run:
        before = run.await_stable(2, beyond=3)
        request = run.begin_resize("--to", "4")
        run.await_status(lambda s: s["phase"] == "preparing")
        kill(by_rank(before, 1))
        request.communicate(timeout=90)
        assert request.returncode == 0
        run.await_status(lambda s: len(ranked(s)) == 4 and s["resets"] == 1)
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_a_stopped_member_is_found_and_taken_out(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS) as run:
        before = run.await_stable(3, beyond=3)
        kill(by_rank(before, 2), how=signal.SIGSTOP)
        after_a_loss(run, 2)
        assert "stopped" in run.output


def test_too_few_members_wait_in_memory_for_a_replacement(tmp_path: Path) -> None:
    flags = ("--min-np", "2", "--max-np", "2", "--cooldown", "1", "5")
    with Run(tmp_path, *flags, np=2) as run:
        before = run.await_stable(2, beyond=3)
        kill(by_rank(before, 1))
        run.await_line("fewer than --min-np")
        after = run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 2)
        assert by_rank(after, 0)["pid"] == by_rank(before, 0)["pid"]
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_too_few_members_for_too_long_end_the_job_with_one_line(tmp_path: Path) -> None:
    flags = ("--min-np", "2", "--max-np", "2", "--cooldown", "60", "60", "--elastic-timeout", "3")
    with Run(tmp_path, *flags, np=2) as run:
        before = run.await_stable(2, beyond=3)
        kill(by_rank(before, 1))
        assert run.wait() == 1
        errors = [line for line in run.lines if line.startswith("midflight: error:")]
        assert len(errors) == 1 and "2 members needed, 1 left" in errors[0]
        assert "Traceback" not in run.output
        assert run.left_over() == []


def test_the_reset_limit_ends_the_job(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, "--reset-limit", "0") as run:
        before = run.await_stable(3, beyond=3)
        kill(by_rank(before, 1))
        assert run.wait() == 1
        assert "--reset-limit 0" in run.output
        assert run.left_over() == []


def mistaken(tmp_path: Path, who: str) -> list[str]:
    out = str(tmp_path / "out")
    return ["python", str(COUNTING), "--out", out, "--raise-at", "20", "--raise-on", who]


def test_an_exception_on_one_rank_is_shown_and_the_others_go_on(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, script=mistaken(tmp_path, "one")) as run:
        run.await_line("ValueError: a mistake in step 20")
        status = run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 2)
        assert status["hosts"][0]["cooling"] > 0
        first = next(line for line in run.lines if "<stderr>" in line)
        assert "Traceback" in first
        run.progress()
        assert run.finish() == 0
        check_complete(run)


def test_an_exception_on_all_ranks_fails_the_job_once(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, script=mistaken(tmp_path, "all")) as run:
        assert run.wait() == 1
        assert run.output.count("Traceback (most recent call last)") == 1
        errors = [line for line in run.lines if line.startswith("midflight: error:")]
        assert len(errors) == 1 and "a mistake in step 20" in errors[0]
        assert run.left_over() == []


def test_ctrl_c_ends_everything_within_seconds(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, "-H", "localhost:2,127.0.0.2:2") as run:
        run.await_stable(3, beyond=3)
        os.kill(run.launcher.pid, signal.SIGINT)
        assert run.wait(timeout=20) == 130
        assert run.left_over() == []
        assert "Traceback" not in run.output


def test_a_killed_launcher_takes_nobody_along_and_can_be_started_again(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS) as run:
        before = run.await_stable(3, beyond=3)
        os.kill(run.launcher.pid, signal.SIGKILL)
        os.kill(coordinator_of(run), signal.SIGKILL)
        run.launcher.wait()
        with run:  # the same command again takes the run up
            after = run.await_status(
                lambda s: (
                    s["phase"] == "stable"
                    and s["step"] > before["step"] + 10
                    and all(m["state"] == "active" for m in s["members"])
                )
            )
            assert [m["pid"] for m in ranked(after)] == [m["pid"] for m in ranked(before)]
            assert run.finish() == 0
            check_complete(run)


def test_a_world_without_a_coordinator_completes_its_training_and_ends(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, "--elastic-timeout", "2") as run:
        before = run.await_stable(3, beyond=3)
        os.kill(run.launcher.pid, signal.SIGKILL)
        os.kill(coordinator_of(run), signal.SIGKILL)
        run.launcher.wait()
        time.sleep(4.0)  # far beyond the elastic timeout
        assert {m["pid"] for m in ranked(before)} <= set(run.left_over())
        run.epochs = before["step"] // STEPS + 4
        run.hurry()
        deadline = time.monotonic() + PATIENCE
        while run.left_over() and time.monotonic() < deadline:
            time.sleep(0.1)
        check_complete(run)
