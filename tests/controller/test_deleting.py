"""A job is deleted, in whatever state it is."""

from midflight.controller import commands as do
from midflight.controller import events
from tests.controller.scenario import GIT, Scenario, node


def test_a_running_job_is_stopped_and_then_removed() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver_all()
    s.delete()
    assert s.job().deleting
    assert {stop.grace for stop in s.given(do.StopInstance)} == {10.0}
    s.deliver_all()
    assert not s.cluster.jobs


def test_a_pending_job_goes_at_once() -> None:
    s = Scenario(node("node-1", gpus=0))
    s.etjob()
    s.delete()
    assert not s.cluster.jobs


def test_a_job_whose_code_is_being_fetched_goes_at_once() -> None:
    s = Scenario(held=True)
    s.etjob(sync=GIT)
    s.delete()
    assert not s.cluster.jobs
    s.deliver_all()  # the code comes late
    assert not s.cluster.jobs


def test_a_finished_job_goes_at_once() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 0)
    s.delete()
    assert not s.cluster.jobs


def test_deleting_twice_kills_at_once() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.deaf = {"job-worker-0"}
    s.delete()
    assert s.job().deleting
    s.deaf.clear()
    s.delete()
    assert not s.cluster.jobs
    assert s.given(do.StopInstance)[-1].grace == 0.0


def test_what_does_not_end_is_killed_again_and_again() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.deaf = {"job-worker-0"}
    s.delete()
    s.wait(40)
    kills = [c for c in s.given(do.StopInstance) if c.grace == 0.0]
    assert len(kills) >= 2
    s.deaf.clear()
    s.wait(20)
    assert not s.cluster.jobs


def test_an_operation_that_was_open_ends_with_the_job() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver_all()
    s.scale("scaleout")
    s.delete()
    assert s.operation().message == "the job was deleted"


def test_nothing_is_started_again_while_a_job_is_deleted() -> None:
    s = Scenario(held=True)
    s.etjob(workers=2)
    s.deliver_all()
    s.delete()
    started = len(s.given(do.StartInstance))
    s.end("worker-1", -9)
    s.wait(5)
    assert len(s.given(do.StartInstance)) == started


def test_a_name_can_be_used_again_as_soon_as_the_job_is_gone() -> None:
    s = Scenario()
    s.etjob()
    s.delete()
    assert s.etjob().created_at == s.now
    s.tell(events.InstanceEnded(s.now, "default/job", "job-worker-7", 1, 0))
