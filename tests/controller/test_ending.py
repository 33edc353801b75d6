"""Instances that end by themselves, and what the policies make of it."""

import pytest

from midflight.controller import commands as do
from midflight.controller import events
from midflight.controller.instance_end import Fate, described, replaces
from midflight.controller.state import Phase, Stage
from tests.controller.scenario import Scenario, node


def test_a_worker_that_fails_is_replaced_under_its_name_after_a_pause() -> None:
    s = Scenario()
    s.etjob()
    s.end("worker-1", 1)
    assert s.instance("worker-1").stage is Stage.PENDING
    assert s.job().phase is Phase.RUNNING
    s.wait(0.5)
    assert s.instance("worker-1").stage is Stage.RUNNING
    assert s.instance("worker-1").attempt == 2


def test_pauses_double_up_to_half_a_minute_and_start_over_after_a_healthy_run() -> None:
    s = Scenario()
    s.etjob()
    pauses = []
    for _ in range(9):
        s.end("worker-0", 1)
        pauses.append(s.instance("worker-0").retry_at - s.now)
        s.wait(30)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    s.wait(600)
    s.end("worker-0", 1)
    assert s.instance("worker-0").retry_at - s.now == 0.5


def test_a_worker_that_is_started_again_keeps_its_place_meanwhile() -> None:
    s = Scenario(node("node-1", gpus=1))
    s.etjob("job", workers=1)
    s.etjob("other", workers=1)
    s.end("worker-0", 1)
    assert s.job("other").phase is Phase.PENDING
    s.wait(0.5)
    assert s.instance("worker-0").devices == (0,)
    assert s.instance("worker-0").stage is Stage.RUNNING


def test_a_worker_that_is_done_is_not_started_again_in_a_hurry() -> None:
    s = Scenario()
    s.etjob()
    s.end("worker-0", 0)
    s.wait(4)
    assert s.instance("worker-0").stage is Stage.PENDING
    s.end("launcher", 0)
    assert s.instance("worker-0").stage is Stage.COMPLETED
    assert s.instance("worker-0").attempt == 1


@pytest.mark.parametrize(
    ("policy", "code", "replaced"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("OnFailure", -9, True),
        ("ExitCode", 1, False),
        ("ExitCode", 127, False),
        ("ExitCode", 128, True),
        ("ExitCode", 255, True),
        ("ExitCode", -9, True),
        ("Never", 0, False),
        ("Never", -9, False),
    ],
)
def test_worker_restart_policies(policy: str, code: int, replaced: bool) -> None:
    s = Scenario()
    s.etjob(worker_restart_policy=policy)
    s.end("worker-0", code)
    s.wait(10)
    well = Stage.COMPLETED if code == 0 else Stage.ERROR
    assert s.instance("worker-0").stage is (Stage.RUNNING if replaced else well)
    assert s.job().phase is Phase.RUNNING


def test_a_lost_node_counts_as_a_kill_for_every_policy_but_never() -> None:
    assert replaces("ExitCode", Fate.LOST, None)
    assert replaces("OnFailure", Fate.LOST, None)
    assert replaces("ExitCode", Fate.UNSTARTED, None)  # no code is to blame
    assert not replaces("Never", Fate.LOST, None)


def test_a_launcher_that_is_killed_is_started_again_and_its_workers_go_on() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", -9)
    assert s.job().phase is Phase.RUNNING
    assert not s.given(do.StopInstance)
    s.wait(0.5)
    assert s.instance("launcher").attempt == 2
    assert s.instance("worker-0").attempt == 1


def test_a_launcher_is_started_again_twenty_times_in_a_row_and_no_more() -> None:
    s = Scenario()
    s.etjob()
    for _ in range(20):
        s.end("launcher", -9)
        assert s.job().phase is Phase.RUNNING
        s.wait(30)
    s.end("launcher", -9)
    assert s.job().phase is Phase.FAILED
    assert "SIGKILL" in s.job().reason


def test_with_on_failure_all_of_an_etjob_starts_anew_until_the_limit() -> None:
    s = Scenario()
    s.etjob(restart_policy="OnFailure", backoff_limit=2)
    for restarts in (1, 2):
        s.end("launcher", 1)
        assert s.job().restarts == restarts
        assert s.job().phase is Phase.RUNNING
        assert {i.attempt for i in s.job().instances.values()} == {restarts + 1}
    s.end("launcher", 1)
    assert s.job().phase is Phase.FAILED


def test_nothing_starts_anew_before_all_of_the_old_has_ended() -> None:
    s = Scenario()
    s.etjob(restart_policy="OnFailure")
    s.deaf = {"job-worker-1"}
    s.end("launcher", 1)
    assert s.job().phase is Phase.PENDING
    assert s.stages()["worker-1"] == "Terminating"
    assert s.stages()["worker-0"] == "Pending"
    s.deaf.clear()
    s.wait(15)  # it is killed again
    assert s.job().phase is Phase.RUNNING


def test_a_restart_keeps_the_time_of_the_first_start() -> None:
    s = Scenario()
    s.etjob(restart_policy="OnFailure")
    began = s.job().started_at
    s.wait(50)
    s.end("launcher", 1)
    assert s.job().started_at == began


def test_any_failure_ends_a_fixed_pytorchjob_and_names_the_instance() -> None:
    s = Scenario()
    s.pytorchjob()
    s.end("worker-1", 5)
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "job-worker-1 ended with code 5"


def test_retry_starts_the_failed_instance_of_a_pytorchjob_again() -> None:
    s = Scenario()
    s.pytorchjob(retry=1)
    s.end("worker-0", 1)
    s.wait(1)
    assert s.instance("worker-0").attempt == 2
    assert s.instance("master-0").attempt == 1
    s.end("worker-0", -11)
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "job-worker-0 was killed by SIGSEGV"


def test_a_crash_of_all_instances_of_a_pytorchjob_is_one_restart() -> None:
    """A collective that breaks ends every process; each was a restart, and seven were too many."""
    s = Scenario(node("node-1", gpus=9))
    s.pytorchjob(workers=9, retry=6)
    for restarts in (1, 2):
        for name in list(s.stages()):
            s.end(name, 1)
        assert (s.job().phase, s.job().restarts) == (Phase.RUNNING, restarts)
        s.wait(60)
        assert set(s.stages().values()) == {"Running"}


def test_a_crash_after_another_is_counted_once_too() -> None:
    s = Scenario()
    s.pytorchjob(workers=2, retry=2)
    s.end("worker-0", 1)
    s.wait(5)
    for name in ("worker-0", "master-0"):
        s.end(name, 1)
    assert (s.job().phase, s.job().restarts) == (Phase.RUNNING, 2)


def test_a_worker_of_a_pytorchjob_that_is_done_waits_for_the_master() -> None:
    s = Scenario()
    s.pytorchjob()
    s.end("worker-0", 0)
    assert s.job().phase is Phase.RUNNING
    assert s.instance("worker-0").stage is Stage.COMPLETED
    s.end("master-0", 0)
    assert s.job().phase is Phase.SUCCEEDED


def test_an_elastic_pytorchjob_survives_the_death_of_its_master() -> None:
    s = Scenario()
    s.pytorchjob(workers=3, min_workers=1, max_workers=4)
    s.end("master-0", -9)
    s.wait(1)
    assert s.job().phase is Phase.RUNNING
    assert s.instance("master-0").attempt == 2


def test_a_command_that_cannot_be_started_fails_the_job_at_once() -> None:
    s = Scenario(held=True)
    s.etjob()
    s.cannot_start("launcher", "no such folder")
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "job-launcher could not be started: no such folder"


def test_a_launcher_that_cannot_be_started_again_at_once_does_not_end_a_training() -> None:
    s = Scenario(held=True)
    s.etjob()
    s.deliver_all()
    s.end("launcher", -9)
    s.wait(1)
    s.cannot_start("launcher", "disk full")
    assert s.job().phase is Phase.RUNNING
    s.wait(5)
    s.deliver_all()
    assert s.instance("launcher").attempt == 3
    assert set(s.stages().values()) == {"Running"}


def test_a_worker_that_can_never_be_started_fails_the_job_in_the_end() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    for _ in range(5):
        assert s.job().phase is Phase.PENDING
        s.cannot_start("worker-0", "disk full")
        s.wait(30)
    assert s.job().phase is Phase.FAILED


def test_a_worker_whose_image_is_of_no_use_fails_a_job_that_has_not_run_and_no_other() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.cannot_start("worker-0", "its image has Python 3.7", hopeless=True)
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "job-worker-0 could not be started: its image has Python 3.7"
    s = Scenario(held=True)
    s.etjob(workers=2)
    s.deliver_all()
    s.end("worker-1", 1)
    s.wait(1)
    s.cannot_start("worker-1", "its image has Python 3.7", hopeless=True)
    assert s.job().phase is Phase.RUNNING


def test_news_of_an_older_attempt_is_stale() -> None:
    s = Scenario()
    s.etjob()
    s.end("worker-0", 1)
    s.wait(1)
    before = s.cluster
    s.tell(events.InstanceEnded(s.now, "default/job", "job-worker-0", 1, 0))
    s.tell(events.InstanceEnded(s.now, "default/job", "job-worker-9", 1, 0))
    s.tell(events.InstanceEnded(s.now, "default/nobody", "nobody-launcher", 1, 0))
    assert s.cluster is before


def test_ends_are_described_in_words() -> None:
    assert described(2) == "ended with code 2"
    assert described(-15) == "was killed by SIGTERM"
    assert described(-99) == "was killed by signal 99"
