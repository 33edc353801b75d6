"""Scale operations, from their start to what the training said."""

import pytest

from midflight.controller import commands as do
from midflight.controller import events, views
from midflight.controller.state import Phase, Progress
from tests.controller.scenario import Scenario, node

FULL = "0/1 nodes have 1 free GPU"


def asks(s: Scenario) -> list[do.AskResize]:
    return s.given(do.AskResize)


def test_a_scaleout_starts_workers_and_asks_at_the_same_time() -> None:
    s = Scenario(held=True)
    s.etjob(workers=2, gpus=2)
    s.deliver_all()
    s.scale("scaleout", 2, timeout=90.0)
    assert s.job().phase is Phase.SCALING
    assert s.operation().progress is Progress.ASKED
    assert s.stages()["worker-3"] == "Starting"
    asked = asks(s)[-1]
    assert (asked.members, asked.leaving, asked.timeout) == (8, (), 90.0)
    s.deliver_all()
    assert s.operation().progress is Progress.SUCCEEDED
    assert s.operation().message == "switched"
    assert s.job().wanted == 4
    assert s.job().phase is Phase.RUNNING


def test_a_scaleout_that_the_training_refuses_takes_its_workers_back() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 2)
    assert len(s.job().instances) == 5
    s.answer(False, "worker 3 was not ready")
    assert len(s.job().instances) == 3
    assert s.operation().progress is Progress.FAILED
    assert s.operation().message == "worker 3 was not ready"
    assert s.job().wanted == 2
    assert s.given(do.WriteHosts)[-1].hosts == {"job-worker-0": 1, "job-worker-1": 1}


def test_a_failed_scaleout_names_the_workers_that_found_no_room() -> None:
    s = Scenario(node("node-1", gpus=3))
    s.etjob(workers=2)
    s.scale("scaleout", 2)
    s.wait(60)
    assert s.operation().progress is Progress.FAILED
    assert s.operation().message == f"not ready; job-worker-3 is pending: {FULL}"
    assert s.stages() == {"launcher": "Running", "worker-0": "Running", "worker-1": "Running"}


def test_once_the_training_was_asked_its_answer_alone_decides() -> None:
    """A switch that has begun cannot be taken back: with long steps it ends after the timeout."""
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1, timeout=60.0)
    s.wait(600)
    assert s.operation().progress is Progress.ASKED
    s.answer(True, "resized from 2 to 3 members at step 9")
    assert s.operation().progress is Progress.SUCCEEDED
    assert s.job().wanted == 3


def test_a_worker_whose_start_is_heard_of_after_the_training_s_late_answer_is_kept() -> None:
    """The server was away: the training has the worker, and the keeper's word is on its way."""
    s = Scenario(held=True)
    s.etjob(workers=2)
    s.deliver_all()
    s.training_answers = False
    s.scale("scaleout", 1, timeout=60.0)
    s.now += 600.0
    s.answer(True, "resized from 2 to 3 members at step 9")
    assert s.operation().progress is Progress.PLACING
    s.deliver_all()
    assert s.operation().progress is Progress.SUCCEEDED
    assert s.job().wanted == 3 and s.stages()["worker-2"] == "Running"


def test_an_operation_waits_for_instances_that_the_training_did_not_need() -> None:
    s = Scenario(held=True)
    s.etjob(workers=2)
    s.deliver_all()
    s.scale("scaleout", 1)
    s.answer(True, "there is no training to ask")
    assert s.operation().progress is Progress.PLACING
    s.deliver_all()
    assert s.operation().progress is Progress.SUCCEEDED


def test_instances_that_do_not_start_fail_an_operation_that_the_training_did_not_mind() -> None:
    s = Scenario(node("node-1", gpus=2))
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1)
    s.answer(True)
    s.wait(60)
    assert s.operation().progress is Progress.FAILED
    assert FULL in s.operation().message
    assert s.job().wanted == 2


def test_partial_keeps_what_came_and_asks_again_for_that() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob(workers=2)
    s.scale("scaleout", 3, partial=True)
    s.wait(60)
    assert [a.members for a in asks(s)] == [5, 4]
    assert s.operation().progress is Progress.SUCCEEDED
    assert s.operation().message.startswith("2 of 3: ")
    assert s.job().wanted == 4
    assert sorted(s.stages()) == ["launcher", *(f"worker-{n}" for n in range(4))]


def test_partial_fails_when_nothing_came() -> None:
    s = Scenario(node("node-1", gpus=2))
    s.etjob(workers=2)
    s.scale("scaleout", 2, partial=True)
    s.wait(60)
    assert s.operation().progress is Progress.FAILED
    assert s.job().wanted == 2


def test_partial_is_rolled_back_when_the_smaller_size_is_refused_too() -> None:
    s = Scenario(node("node-1", gpus=3))
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 2, partial=True)
    s.answer(False, "not ready")
    assert s.operation().workers == ("job-worker-2",)
    s.answer(False, "still not")
    assert s.operation().progress is Progress.FAILED
    assert len(s.job().instances) == 3


def test_a_scalein_lets_the_newest_go_and_stops_them_only_when_the_training_agrees() -> None:
    s = Scenario(held=True)
    s.etjob(workers=4)
    s.deliver_all()
    s.training_answers = False
    s.scale("scalein", 2)
    assert asks(s)[-1].leaving == ("job-worker-3", "job-worker-2")
    assert asks(s)[-1].members is None
    assert not s.given(do.StopInstance)
    s.answer(True, "switched")
    assert s.job().wanted == 2
    kinds = [type(c) for c in s.commands]
    assert kinds.index(do.StopInstance) > max(
        number for number, kind in enumerate(kinds) if kind is do.WriteHosts
    )
    assert s.given(do.WriteHosts)[-1].hosts == {"job-worker-0": 1, "job-worker-1": 1}
    assert s.operation().progress is Progress.STOPPING
    s.deliver_all()
    assert s.operation().progress is Progress.SUCCEEDED
    assert sorted(s.stages()) == ["launcher", "worker-0", "worker-1"]


def test_a_scalein_that_is_refused_changes_nothing() -> None:
    s = Scenario()
    s.etjob(workers=3)
    s.training_answers = False
    s.scale("scalein", 1)
    s.answer(False, "busy")
    assert s.operation().progress is Progress.FAILED
    assert s.job().wanted == 3
    assert set(s.stages().values()) == {"Running"}


def test_named_workers_leave_and_no_others() -> None:
    s = Scenario()
    s.etjob(workers=3)
    s.scale("scalein", names=("worker-0",))
    assert sorted(s.stages()) == ["launcher", "worker-1", "worker-2"]


def test_the_number_of_a_worker_that_left_last_is_used_again() -> None:
    s = Scenario()
    s.etjob(workers=4)
    s.scale("scalein", 1)
    assert "worker-3" not in s.stages()
    s.scale("scaleout", 1)
    assert s.operation().workers == ("job-worker-3",)
    s.scale("scalein", names=("worker-0",))
    s.scale("scaleout", 1)
    assert s.operation().workers == ("job-worker-4",)
    worker = s.instance("worker-3")
    assert worker.attempt == 2  # news of the one before it is stale
    assert views.instance_view(s.cluster, worker, s.now)["restarts"] == 0


def test_workers_that_never_found_room_leave_without_the_training_losing_a_member() -> None:
    s = Scenario(node("node-1", gpus=2))
    s.etjob(workers=3)
    s.scale("scalein", 1)
    assert asks(s)[-1].leaving == ()
    assert asks(s)[-1].members == 2
    assert s.operation().progress is Progress.SUCCEEDED
    assert set(s.stages().values()) == {"Running"}


def test_operations_run_one_at_a_time_in_the_order_they_came() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 2)
    s.scale("scalein", 1)
    first, second = s.job().operations
    assert (first.progress, second.progress) == (Progress.ASKED, Progress.QUEUED)
    assert (second.was, second.target) == (4, 3)
    s.answer(True)
    first, second = s.job().operations
    assert (first.progress, second.progress) == (Progress.SUCCEEDED, Progress.ASKED)
    s.answer(True)
    assert s.job().wanted == 3


def test_a_queued_operation_fails_when_its_time_is_over_in_the_queue() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 2, timeout=100.0)
    s.scale("scaleout", 1, timeout=20.0)
    s.wait(20)
    first, second = s.job().operations
    assert (first.progress, second.progress) == (Progress.ASKED, Progress.FAILED)
    assert second.message == "it waited 20 s for another operation to end"


def test_the_deadline_of_a_queued_operation_counts_from_its_turn() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1, timeout=100.0)
    s.scale("scaleout", 1, timeout=60.0)
    s.wait(50)
    s.answer(True)
    assert s.operation().deadline == s.now + 60


def test_an_operation_whose_bounds_no_longer_hold_fails_when_its_turn_comes() -> None:
    s = Scenario()
    s.etjob(workers=2, min_workers=2, max_workers=4)
    s.training_answers = False
    s.scale("scaleout", 2)
    s.scale("scalein", 2)
    s.answer(False, "no")
    assert [o.progress for o in s.job().operations] == [Progress.FAILED] * 2
    assert "less than the min-workers" in s.operation().message


def test_a_new_worker_that_dies_during_the_operation_is_started_again() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1)
    s.end("worker-2", 1)
    s.wait(1)
    assert s.stages()["worker-2"] == "Running"
    s.answer(True)
    assert s.operation().progress is Progress.SUCCEEDED


def test_the_end_of_the_job_ends_its_operations() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    s.scale("scaleout", 1)
    s.scale("scaleout", 1)
    s.end("launcher", 0)
    assert s.job().phase is Phase.SUCCEEDED
    assert {o.message for o in s.job().operations} == {"the job ended before that: SUCCEEDED"}


def test_a_restart_of_the_job_takes_the_operation_back() -> None:
    s = Scenario()
    s.etjob(workers=2, restart_policy="OnFailure")
    s.training_answers = False
    s.scale("scaleout", 2)
    s.end("launcher", 1)
    assert s.operation().progress is Progress.FAILED
    assert sorted(s.stages()) == ["launcher", "worker-0", "worker-1"]
    assert s.job().phase is Phase.RUNNING


def test_progress_is_counted_as_change() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    before = s.scale("scaleout", 1).changes
    s.tell(events.ResizeProgressed(s.now, "default/job", s.operation().id, "1 of 1 is ready"))
    assert s.operation().message == "1 of 1 is ready"
    assert s.operation().changes == before + 1


def test_an_answer_that_comes_late_or_twice_is_ignored() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.scale("scaleout", 1)
    before = s.cluster
    s.answer(False, "no")
    assert s.cluster is before


def test_an_elastic_pytorchjob_scales_and_keeps_its_master() -> None:
    s = Scenario()
    s.pytorchjob(workers=2, min_workers=1, max_workers=4)
    s.scale("scaleout", 2)
    assert asks(s)[-1].members == 4
    assert sorted(s.stages()) == ["master-0", "worker-0", "worker-1", "worker-2"]
    s.scale("scalein", 3)
    assert sorted(s.stages()) == ["master-0"]
    assert s.job().wanted == 1


@pytest.mark.parametrize("kind", ["scaleout", "scalein"])
def test_both_directions_are_recorded(kind: str) -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.scale(kind, 1)
    word = {"scaleout": "ScaleOut", "scalein": "ScaleIn"}[kind]
    assert s.said(f"{word}Asked")
    assert s.said(f"{word}Succeeded")
