"""Whoever takes the state up finds again what is to be done, from the state and what is seen."""

from dataclasses import replace

from midflight.controller import commands as do
from midflight.controller import events
from midflight.controller.handle import handle
from midflight.controller.orders import orders
from midflight.controller.state import Cluster, Phase, Progress
from tests.controller.scenario import GIT, Scenario


def taken_up(s: Scenario) -> list[do.Order | do.AskResize]:
    """By somebody who knows nothing of what was asked, written or told before."""
    cluster, _ = handle(replace(s.cluster, active=None), events.ServerStarted(s.now))
    for forgotten in (s.told, s.fetching, s.asking):
        forgotten.clear()
    return [order for job in cluster.jobs.values() for order in orders(job, s.observed(job))]


def test_code_is_fetched_again() -> None:
    s = Scenario(held=True)
    s.etjob(sync=GIT)
    assert do.FetchCode("default/job") in taken_up(s)


def test_what_was_starting_is_started_again_and_what_runs_is_not() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver(0)
    del s.alive["default/job", "job-worker-0"]  # it was not started after all
    started = [c.instance for c in taken_up(s) if isinstance(c, do.StartInstance)]
    assert started == ["job-worker-0"]


def test_what_was_stopping_is_stopped_again_with_what_is_left_of_its_time() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.deaf = {"job-worker-0"}
    s.delete()
    s.now += 4
    stops = [c for c in taken_up(s) if isinstance(c, do.StopInstance)]
    assert [(c.instance, c.grace) for c in stops] == [("job-worker-0", 6.0)]


def test_the_training_is_asked_again_and_given_time_to_answer() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1, timeout=60.0)
    s.now += 1000  # the server was away for long, and the training may have switched
    s.restart()
    first, asked = s.given(do.AskResize)[-2:]
    assert (asked.members, asked.timeout, asked.again) == (3, 0.0, True)
    assert asked.request == first.request, "the same request, however often it is asked for"
    assert s.operation().progress is Progress.ASKED
    s.answer(True)
    assert s.operation().progress is Progress.SUCCEEDED


def test_a_job_that_was_to_be_removed_is_removed() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 0)
    s.cluster = Cluster(s.cluster.nodes, {"default/job": replace(s.job(), deleting=True)})
    s.restart()
    assert not s.cluster.jobs


def test_an_instance_that_died_while_nobody_looked_is_started_again() -> None:
    s = Scenario()
    s.etjob(workers=2)
    del s.alive["default/job", "job-worker-1"]
    s.restart()
    s.wait(1)
    assert s.instance("worker-1").attempt == 2
    assert s.job().phase is Phase.RUNNING


def test_times_that_are_known_stay_when_an_instance_is_found_again() -> None:
    s = Scenario()
    s.etjob()
    began = s.instance("worker-0").started_at
    s.now += 100
    s.restart()
    assert s.instance("worker-0").started_at == began


def test_finished_jobs_are_left_alone() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 0)
    assert taken_up(s) == []


def test_deadlines_that_passed_meanwhile_are_acted_on() -> None:
    s = Scenario()
    s.etjob(running_timeout=60.0)
    s.now += 100
    s.restart()
    assert s.job().phase is Phase.FAILED
