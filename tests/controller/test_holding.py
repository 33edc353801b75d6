"""A job that is suspended stops, stays on the list, and begins anew when it is released."""

from midflight.controller import roster
from midflight.controller.state import Phase, Progress
from tests.controller.scenario import Scenario


def test_a_job_that_is_held_stops_and_frees_what_it_had() -> None:
    s = Scenario()
    s.etjob(workers=3)
    s.etjob("other", workers=12, max_workers=12)
    assert s.job("other").instances["other-worker-11"].stage.value == "Pending"
    s.hold("a queue")
    assert set(s.stages().values()) == {"Pending"}
    assert s.job().phase is Phase.PENDING
    assert s.job().reason == "suspended: a queue holds it back"
    assert not [name for key, name in s.alive if key == "default/job"]
    assert roster.counted(s.job("other"))[-1].stage.value == "Running"
    assert s.said("Suspended") == ["a queue holds it back"]


def test_it_begins_anew_with_as_many_workers_when_it_is_released() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.scale("scaleout", 1)
    assert s.job().wanted == 3
    s.hold()
    s.wait(500)
    s.release()
    assert set(s.stages().values()) == {"Running"}
    assert len(roster.counted(s.job())) == 3
    assert s.job().phase is Phase.RUNNING
    assert s.job().started_at == s.now
    assert {i.attempt for i in s.job().instances.values()} == {2}


def test_nothing_begins_before_all_of_the_old_has_ended() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver_all()
    s.hold()
    s.release()
    assert set(s.stages().values()) == {"Terminating"}
    s.deliver(0)
    assert "Starting" not in s.stages().values()
    s.deliver_all()
    assert set(s.stages().values()) == {"Running"}


def test_what_was_asked_of_it_comes_to_an_end_with_the_reason() -> None:
    s = Scenario()
    s.training_answers = False
    s.etjob(workers=2)
    s.scale("scaleout", 1)
    s.hold("a queue")
    assert s.operation().progress is Progress.FAILED
    assert s.operation().message == "the job was suspended: a queue"
    assert len(s.stages()) == 3


def test_the_time_it_is_held_counts_for_neither_of_its_limits() -> None:
    s = Scenario()
    s.etjob(workers=2, max_wait_time=60.0, running_timeout=100.0)
    s.wait(90)
    s.hold()
    s.wait(1000)
    s.release()
    assert s.job().phase is Phase.RUNNING
    s.wait(90)
    assert s.job().phase is Phase.RUNNING
    s.wait(20)
    assert s.job().phase is Phase.FAILED


def test_a_server_that_comes_back_keeps_it_held() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.hold()
    s.restart()
    s.wait(100)
    assert set(s.stages().values()) == {"Pending"}
    s.release()
    assert set(s.stages().values()) == {"Running"}


def test_it_can_be_deleted_meanwhile_and_one_that_is_over_is_not_held() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.hold()
    s.delete()
    assert not s.cluster.jobs
    s.etjob("done", workers=1)
    s.end("launcher", 0, "done")
    s.hold(name="done")
    assert s.job("done").phase is Phase.SUCCEEDED
    assert not s.job("done").held
