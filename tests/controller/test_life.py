"""A job from its submission to its end."""

import pytest

from midflight.controller import commands as do
from midflight.controller import events
from midflight.controller.state import Code, Phase, Stage
from tests.controller.scenario import GIT, Scenario, node


def test_an_etjob_gets_a_launcher_and_workers_and_runs() -> None:
    s = Scenario()
    s.etjob()
    assert s.stages() == {
        "launcher": "Running",
        "worker-0": "Running",
        "worker-1": "Running",
        "worker-2": "Running",
    }
    assert s.job().phase is Phase.RUNNING
    assert s.job().started_at == s.now


def test_a_launcher_takes_no_device_and_its_workers_are_spread() -> None:
    s = Scenario()
    s.etjob(gpus=2)
    assert s.instance("launcher").devices == ()
    assert {s.instance(f"worker-{n}").node for n in range(3)} == {"node-1", "node-2", "node-3"}
    assert s.instance("worker-0").devices == (0, 1)


def test_a_pytorchjob_counts_its_master_as_a_worker() -> None:
    s = Scenario()
    s.pytorchjob(workers=3)
    assert list(s.stages()) == ["master-0", "worker-0", "worker-1"]
    assert s.instance("master-0").devices == (0,)
    assert s.job().phase is Phase.RUNNING


def test_code_is_fetched_before_anything_starts() -> None:
    s = Scenario(held=True)
    s.etjob(sync=GIT)
    assert s.job().code is Code.FETCHING
    assert not s.job().instances
    assert s.given(do.FetchCode) == [do.FetchCode("default/job")]
    s.deliver(0)
    assert s.job().commit == "c0ffee"
    assert len(s.given(do.StartInstance)) == 4


def test_code_that_cannot_be_fetched_fails_the_job() -> None:
    s = Scenario()
    s.code_comes = False
    s.etjob(sync=GIT)
    s.tell(events.CodeNotFetched(s.now, "default/job", "no such repository"))
    assert s.job().phase is Phase.FAILED
    assert "no such repository" in s.job().reason


def test_the_first_commit_holds_when_the_fetch_is_reported_twice() -> None:
    s = Scenario()
    s.etjob(sync=GIT)
    s.tell(events.CodeFetched(s.now, "default/job", "another"))
    assert s.job().commit == "c0ffee"


def test_the_source_of_the_code_is_not_recorded_since_it_may_hold_a_password() -> None:
    s = Scenario()
    s.etjob(sync=GIT)
    assert not [r for r in s.records if "example.org" in r.message]


def test_a_launcher_that_ends_with_0_ends_the_job_well_and_workers_are_stopped() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 0)
    assert s.job().phase is Phase.SUCCEEDED
    assert set(s.stages().values()) == {"Completed"}
    assert {stop.grace for stop in s.given(do.StopInstance)} == {10.0}


def test_a_launcher_that_fails_fails_the_job_and_the_reason_says_how() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 3)
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "job-launcher ended with code 3"
    assert s.instance("launcher").stage is Stage.ERROR


def test_a_command_that_is_over_at_once_has_still_run() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver(0)  # the launcher is up, its worker is not
    s.now += 2
    s.end("launcher", 0)
    assert s.job().phase is Phase.SUCCEEDED
    assert s.job().started_at == s.now - 2


@pytest.mark.parametrize("policy", ["Running", "All"])
def test_the_clean_policies_stop_what_is_left(policy: str) -> None:
    s = Scenario()
    s.pytorchjob(clean_policy=policy)
    s.end("master-0", 0)
    assert not s.alive


def test_the_clean_policy_none_lets_instances_run_on_and_lists_their_end() -> None:
    s = Scenario()
    s.pytorchjob(clean_policy="None")
    s.end("master-0", 0)
    assert s.stages() == {"master-0": "Completed", "worker-0": "Running", "worker-1": "Running"}
    s.end("worker-0", 7)
    assert s.instance("worker-0").stage is Stage.ERROR
    assert s.instance("worker-0").attempt == 1


def test_a_job_that_runs_too_long_fails() -> None:
    s = Scenario()
    s.etjob(running_timeout=600.0)
    s.wait(599)
    assert s.job().phase is Phase.RUNNING
    s.wait(1)
    assert s.job().phase is Phase.FAILED
    assert s.job().reason == "ran longer than 10m"


def test_a_job_that_waits_too_long_is_given_up_with_what_it_waited_for() -> None:
    s = Scenario(node("node-1", gpus=1))
    s.etjob(gpus=2, max_wait_time=30.0)
    s.wait(30)
    assert s.job().phase is Phase.MAX_WAIT_TIME_EXCEEDED
    assert s.job().reason == "waited longer than 30s: no node has 2 GPUs; the largest has 1"


def test_a_job_that_ran_has_not_waited_too_long() -> None:
    s = Scenario()
    s.etjob(max_wait_time=30.0)
    s.wait(100)
    assert s.job().phase is Phase.RUNNING


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    s = Scenario()
    s.pytorchjob(ttl_after_finished=60.0)
    s.end("master-0", 0)
    s.wait(59)
    assert s.job().phase is Phase.SUCCEEDED
    s.wait(1)
    assert "default/job" not in s.cluster.jobs


def test_a_job_that_is_kept_for_no_time_goes_with_its_end() -> None:
    s = Scenario()
    s.pytorchjob(ttl_after_finished=0.0)
    s.end("master-0", 0)
    s.wait(0)
    assert not s.cluster.jobs


def test_every_step_is_recorded() -> None:
    s = Scenario()
    s.etjob(workers=1, sync=GIT)
    s.end("launcher", 0)
    s.delete()
    reasons = [r.reason for r in s.records]
    assert list(dict.fromkeys(reasons)) == [
        "Submitted",
        "FetchingCode",
        "CodeFetched",
        "Scheduled",
        "Started",
        "Running",
        "Succeeded",
        "Deleting",
        "Deleted",
    ]


def test_hosts_are_written_with_their_slots_before_workers_start() -> None:
    s = Scenario()
    s.etjob(workers=2, gpus=2)
    kinds = [type(c) for c in s.commands]
    assert kinds.index(do.WriteHosts) < kinds.index(do.StartInstance)
    assert s.given(do.WriteHosts)[-1].hosts == {"job-worker-0": 2, "job-worker-1": 2}


def test_the_hosts_of_an_elastic_pytorchjob_include_the_master() -> None:
    s = Scenario()
    s.pytorchjob(workers=2, min_workers=1, max_workers=4)
    assert s.given(do.WriteHosts)[-1].hosts == {"job-master-0": 1, "job-worker-0": 1}


def test_a_job_of_fixed_size_has_no_hostfile() -> None:
    s = Scenario()
    s.pytorchjob()
    assert not s.given(do.WriteHosts)
