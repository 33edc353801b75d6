"""A launcher that is lost with its machine: another one, elsewhere, takes the run up."""

import signal
from pathlib import Path
from typing import Any

import pytest

from midflight.run.record import saved_state
from tests.e2e.runs import check_complete, coordinator_of
from tests.kubernetes.plane.control import Plane
from tests.run.moving import MovingRun, can_mount
from tests.store.config_maps import LAUNCHER, as_somebody, make_config_map

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_mount(), reason="needs the right to mount an /etc/hosts of its own"),
]
ELASTIC = ("--min-np", "1", "--max-np", "9")
WORKERS = ("job-worker-0", "job-worker-1")


def pids(status: dict[str, Any]) -> set[int]:
    return {member["pid"] for member in status["members"]}


def test_the_members_train_on_under_a_launcher_that_has_only_the_store(tmp_path: Path) -> None:
    run = MovingRun(tmp_path, *ELASTIC, np=2)
    run.list_hosts(*WORKERS)
    with run.worker(WORKERS[0]) as first, run.worker(WORKERS[1]) as second:
        run.settle()  # the workers were there first: until now, the name meant nothing
        with run:
            before = run.await_stable(2, beyond=3)
            run.kill_launcher(coordinator_of(run))
            refused = run.try_other_work()
            assert refused.returncode == 2
            assert "was interrupted, and its command was" in refused.stderr
            run.move()
            run.await_line("resuming run job where it was interrupted")
            after = run.await_status(lambda s: s["step"] > before["step"] + 5)
            assert pids(after) == pids(before)
            assert run.finish() == 0
            assert (first.wait(30), second.wait(30)) == (0, 0)
            check_complete(run)
            assert not any("lost" in line for line in run.lines), run.output
            run.move()  # nobody saw how the last one ended
            assert run.wait() == 0
            run.await_line("the run job has succeeded already; there is nothing to do")


def test_with_a_config_map_as_store_a_launcher_gives_way_to_the_next(
    tmp_path: Path, plane: Plane
) -> None:
    store = as_somebody(plane, make_config_map(plane), LAUNCHER)
    run = MovingRun(tmp_path, *ELASTIC, np=1, store=store)
    run.list_hosts(WORKERS[0])
    run.settle()
    with run.worker(WORKERS[0]), run:
        before = run.await_stable(1, beyond=3)
        former = run.launcher
        run.move()  # though the one before is still alive
        run.await_line("another launcher has resumed run job; leaving it to that launcher")
        assert former.wait(30) == 3
        after = run.await_status(lambda s: s["step"] > before["step"] + 5)
        assert pids(after) == pids(before)
        assert run.finish() == 0
    check_complete(run)


def test_a_launcher_that_is_told_to_leave_takes_only_the_worker_beside_it_along(
    tmp_path: Path,
) -> None:
    run = MovingRun(tmp_path, *ELASTIC, np=2)
    run.env["MIDFLIGHT_HOST"] = "job-master-0"
    run.list_hosts("job-master-0", "job-worker-0")
    run.settle()
    with run.worker("job-worker-0") as worker, run:
        before = run.await_stable(2, beyond=3)
        run.launcher.send_signal(signal.SIGTERM)
        assert run.wait() == 143
        run.await_line("leaving job to the next launcher; its workers keep training")
        assert worker.poll() is None
        state = saved_state(run.env["MIDFLIGHT_STORE"], "job", b"the job's own")
        assert state is not None and state.world is not None
        assert [member.host for member in state.world.members] == ["job-worker-0"]
        assert state.resets == 0  # it was let go, not lost
        run.move()
        run.await_stable(2, beyond=before["step"] + 5)
        assert run.finish() == 0
    check_complete(run)
