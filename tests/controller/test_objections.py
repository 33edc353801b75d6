"""Which scale operations are refused, and in which words."""

from dataclasses import replace

import pytest

from midflight.controller.scale_rules import objection, operation_id, resolve
from midflight.controller.state import Job, Phase
from tests.controller.scenario import Scenario, node


def running(min_workers: int = 2) -> Job:
    s = Scenario()
    s.etjob(workers=3, min_workers=min_workers, max_workers=5)
    return s.job()


def test_a_wish_within_bounds_is_accepted() -> None:
    assert objection(running(), "scaleout", 2, (), None) is None
    assert objection(running(), "scalein", 1, (), None) is None
    assert objection(running(), "scalein", 1, ("job-worker-0",), None) is None


def test_too_many_and_too_few_are_refused_with_the_figures() -> None:
    assert objection(running(), "scaleout", 3, (), None) == (
        "the number of scaling out plus the number of current workers exceeds the max-workers. "
        "please try again later (3 + 3 > 5)"
    )
    assert objection(running(), "scalein", 2, (), None) == (
        "the number of current workers minus the number of scaling in is less than the "
        "min-workers. please try again later (3 - 2 < 2)"
    )


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused(count: int) -> None:
    for kind in ("scaleout", "scalein"):
        assert "--count is invalid" in str(objection(running(), kind, count, (), None))


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    text = objection(running(), "scalein", 1, ("job-worker-7",), None)
    assert text == (
        "no worker of job is named 'job-worker-7'; "
        "there are job-worker-0, job-worker-1, job-worker-2"
    )


def test_the_same_name_twice_and_the_launcher_are_refused() -> None:
    job = running(min_workers=1)
    twice = ("job-worker-1", "job-worker-1")
    assert objection(job, "scalein", 1, twice, None) == "job-worker-1 was named twice"
    assert "cannot leave" in str(objection(job, "scalein", 1, ("job-launcher",), None))


def test_names_that_do_not_go_with_the_rest_are_refused() -> None:
    job = running(min_workers=1)
    assert "only scalein takes names" in str(objection(job, "scaleout", 1, ("job-worker-1",), None))
    assert "leave --count out" in str(objection(job, "scalein", 3, ("job-worker-1",), None))
    assert "not for both" in str(objection(job, "", 0, ("job-worker-1",), 2))


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.RUNNING, Phase.SCALING)])
def test_a_job_that_does_not_run_cannot_be_scaled(phase: Phase) -> None:
    text = objection(replace(running(), phase=phase), "scaleout", 1, (), None)
    assert text == (
        f"the job: job status: {phase.value} , is not RUNNING or SCALING, please try again later"
    )


def test_a_job_that_is_being_deleted_or_of_fixed_size_cannot_be_scaled() -> None:
    s = Scenario()
    s.pytorchjob()
    assert "fixed size" in str(objection(s.job(), "scaleout", 1, (), None))
    gone = replace(running(), deleting=True)
    assert "being deleted" in str(objection(gone, "scaleout", 1, (), None))


def test_a_size_is_held_against_the_bounds_too() -> None:
    job = running()
    assert objection(job, "", 0, (), 5) is None
    assert "exceeds the max-workers" in str(objection(job, "", 0, (), 6))
    assert "less than the min-workers" in str(objection(job, "", 0, (), 1))
    assert "3 workers already" in str(objection(job, "", 0, (), 3))
    assert resolve(job, "", 0, (), 5) == ("scaleout", 2)
    assert resolve(job, "", 0, (), 2) == ("scalein", 1)


def test_what_waits_in_the_queue_counts() -> None:
    s = Scenario()
    s.etjob(workers=3, max_workers=5)
    s.training_answers = False
    s.scale("scaleout", 1)
    s.scale("scaleout", 1)
    assert "exceeds" in str(objection(s.job(), "scaleout", 1, (), None))
    assert "5 workers already" in str(objection(s.job(), "", 0, (), 5))


def test_a_worker_cannot_be_asked_to_leave_twice() -> None:
    s = Scenario()
    s.etjob(workers=3)
    s.training_answers = False
    s.scale("scalein", names=("worker-1",))
    text = str(objection(s.job(), "scalein", 1, ("job-worker-1",), None))
    assert text == f"job-worker-1 is leaving already, with {s.operation().id}"


def test_an_operation_is_named_by_the_second_and_stays_unique() -> None:
    s = Scenario()
    s.etjob()
    s.training_answers = False
    assert operation_id(s.job(), 1609914643.9) == "job-1609914643"
    first, second = s.scale("scaleout"), s.scale("scaleout")
    assert (first.id, second.id) == ("job-1000", "job-1001")


def test_workers_that_ended_for_good_do_not_count() -> None:
    s = Scenario(node("node-1", gpus=8))
    s.etjob(workers=3, max_workers=3, worker_restart_policy="Never")
    s.end("worker-1", 1)
    assert objection(s.job(), "scaleout", 1, (), None) is None
    assert "no worker" in str(objection(s.job(), "scalein", 1, ("job-worker-1",), None))
