"""The faults of Arena and et-operator that a controller can have, none of which came along.

Numbers and letters are those of the reference's list.
"""

from midflight.controller import commands as do
from midflight.controller import events, views
from midflight.controller.handle import handle
from midflight.controller.instance_end import Fate, replaces
from midflight.controller.operations import HISTORY
from midflight.controller.scale_rules import objection
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Phase, Progress, Stage
from tests.controller.scenario import Scenario, node


def test_1_jobs_of_one_name_in_two_namespaces_leave_each_other_alone() -> None:
    s = Scenario()
    for namespace in ("default", "other"):
        spec = Spec(Kind.ETJOB, "job", "train", namespace=namespace, workers=2, min_workers=1)
        s.submit(spec)
    s.scale("scalein", 1)
    s.delete()
    assert set(s.cluster.jobs) == {"other/job"}
    assert len(s.cluster.jobs["other/job"].instances) == 3
    assert {key for key, _ in s.alive} == {"other/job"}


def test_2_a_wrong_name_deletes_nobody() -> None:
    s = Scenario()
    s.etjob(workers=3)
    assert objection(s.job(), "scalein", 1, ("job-wroker-1",), None) is not None
    wrong = events.ScaleAsked(
        s.now, "default/job", "job-1", "scalein", 1, 60.0, names=("job-wroker-1",)
    )
    s.tell(wrong)  # even if nobody had asked for objections
    assert s.operation().progress is Progress.FAILED
    assert set(s.stages().values()) == {"Running"}


def test_3_a_count_of_zero_is_refused() -> None:
    s = Scenario()
    s.etjob()
    assert objection(s.job(), "scalein", 0, (), None) is not None


def test_4_bounds_are_kept_by_the_server_even_if_nobody_asked_before() -> None:
    s = Scenario()
    s.etjob(workers=2, min_workers=2, max_workers=3)
    for kind in ("scaleout", "scalein"):
        s.tell(events.ScaleAsked(s.now, "default/job", f"job-{kind}", kind, 2, 60.0))
        assert s.operation().progress is Progress.FAILED
    assert s.job().wanted == 2


def test_5_a_launcher_that_is_lost_with_its_node_comes_back() -> None:
    s = Scenario()
    s.etjob()
    s.node("lose", s.instance("launcher").node)
    assert s.instance("launcher").stage is Stage.RUNNING
    assert s.job().phase is Phase.RUNNING


def test_6_a_job_starts_with_the_least_number_of_workers() -> None:
    s = Scenario(node("node-1", gpus=1))
    s.etjob(workers=3, min_workers=1)
    assert s.job().phase is Phase.RUNNING


def test_7_operations_are_first_come_first_served_and_failures_are_seen_meanwhile() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.training_answers = False
    first = s.scale("scaleout", 1)
    s.scale("scaleout", 1)
    assert s.given(do.AskResize)[-1].operation == first.id
    s.end("worker-0", 1)
    assert "job-worker-0" not in s.given(do.WriteHosts)[-1].hosts
    s.wait(1)
    assert s.stages()["worker-0"] == "Running"


def test_8_a_scalein_has_a_deadline_and_worker_1_is_not_worker_10() -> None:
    s = Scenario()
    s.etjob(workers=12, max_workers=12)
    s.training_answers = False
    s.scale("scalein", names=("worker-1",))
    assert s.given(do.AskResize)[-1].leaving == ("job-worker-1",)
    assert s.given(do.AskResize)[-1].timeout == 60.0
    s.answer(False, "m1 could not be let go in time")
    assert s.operation().progress is Progress.FAILED
    assert len(s.job().instances) == 13


def test_9_a_launcher_that_starts_again_finds_the_hosts_of_now() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.scale("scaleout", 1)
    s.end("launcher", -9)
    s.wait(1)
    assert len(s.given(do.WriteHosts)[-1].hosts) == 3


def test_10_instances_stay_listed_after_the_end_and_are_asked_before_they_are_killed() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 0)
    assert len(s.job().instances) == 4
    assert all(c.grace > 0 for c in s.given(do.StopInstance))


def test_13_nothing_of_a_job_is_started_while_its_old_self_still_runs() -> None:
    s = Scenario(held=True)
    s.etjob(workers=2, restart_policy="OnFailure")
    s.deliver_all()
    before = len(s.given(do.StartInstance))
    s.end("launcher", 1)
    s.deliver(0)
    assert len(s.given(do.StartInstance)) == before
    s.deliver_all()
    assert len(s.given(do.StartInstance)) == before + 3


def test_14_one_start_that_fails_does_not_fail_the_job_and_is_told_once() -> None:
    s = Scenario(held=True)
    s.etjob(workers=2)
    s.cannot_start("worker-1", "too many processes")
    s.deliver_all()
    for _ in range(5):
        s.tell(events.TimePassed(s.now))
    assert s.job().phase is Phase.RUNNING
    assert s.said("Failed") == ["could not be started: too many processes"]


def test_15_exit_codes_128_and_255_count_and_the_history_is_bounded() -> None:
    assert replaces("ExitCode", Fate.FAILED, 128)
    assert replaces("ExitCode", Fate.FAILED, 255)
    s = Scenario()
    s.etjob(workers=2)
    for _ in range(HISTORY):
        s.scale("scaleout", 1)
        s.scale("scalein", 1)
        s.now += 2
    assert len(s.job().operations) <= HISTORY + 1


def test_16_a_gang_includes_everybody() -> None:
    s = Scenario(node("node-1", gpus=1), node("node-2", gpus=1))
    s.etjob(workers=3, min_workers=3)
    assert set(s.stages().values()) == {"Pending"}
    s.tell(events.NodesChanged(s.now, tuple(node(f"node-{n}", gpus=1) for n in (1, 2, 3))))
    assert set(s.stages().values()) == {"Running"}


# --- Arena's side -----------------------------------------------------------------------------


def gpus(s: Scenario) -> tuple[int, int]:
    job = views.summary(s.cluster, s.job(), s.now, "")
    return job["requestGPUs"], job["allocatedGPUs"]


def test_a_gpus_are_true_after_scaling() -> None:
    s = Scenario()
    s.etjob(workers=3, gpus=2)
    assert gpus(s) == (6, 6)
    s.scale("scaleout", 1)
    assert gpus(s) == (8, 8)
    s.scale("scalein", 3)
    assert gpus(s) == (2, 2)
    s.end("launcher", 0)
    assert gpus(s) == (2, 0)


def test_b_the_end_of_a_finished_job_does_not_move() -> None:
    s = Scenario()
    s.etjob()
    s.now += 50
    s.end("launcher", 0)
    before = views.summary(s.cluster, s.job(), s.now, "")
    s.wait(500)
    s.restart()
    assert views.summary(s.cluster, s.job(), s.now, "") == before
    assert before["duration"] == 50


def test_c_prune_takes_finished_jobs_only() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob("done", workers=1)
    s.end("launcher", 0, "done")
    s.etjob("running", workers=1)
    s.etjob("pending", workers=4, min_workers=4)
    s.etjob("scaling", workers=1)
    s.training_answers = False
    s.scale("scaleout", 1, job="scaling")
    s.now += 100
    assert [p["name"] for p in views.prunable(s.cluster, "*", 10.0, s.now)] == ["done"]
    assert not views.prunable(s.cluster, "*", 101.0, s.now)
    assert not views.prunable(s.cluster, "other", 10.0, s.now)


def test_c_prune_counts_from_the_end_of_a_job_and_takes_the_first_that_ended_first() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob("long", workers=1)
    s.now += 100
    s.etjob("short", workers=1)
    s.end("launcher", 0, "short")
    s.now += 1000
    s.end("launcher", 0, "long")
    s.now += 10
    assert [p["name"] for p in views.prunable(s.cluster, "*", 11.0, s.now)] == ["short"]
    both = views.prunable(s.cluster, "*", 10.0, s.now)
    assert [(p["name"], p["age"]) for p in both] == [("short", 1010.0), ("long", 10.0)]


def test_d_the_age_of_an_instance_is_its_own() -> None:
    s = Scenario()
    s.etjob(workers=1)
    s.now += 100
    s.scale("scaleout", 1)
    s.now += 10
    job = views.view(s.cluster, s.job(), s.now, "")
    assert [i["age"] for i in job["instances"]] == [110, 110, 10]


def test_f_odd_values_of_variables_pass_untouched() -> None:
    s = Scenario()
    odd = 'a "b" \\ $c, d: {{ e }}'
    s.etjob(env={"ODD": odd})
    s.restart()
    assert s.job().spec.env["ODD"] == odd


def test_i_a_live_job_with_a_pending_worker_is_running_and_can_be_scaled() -> None:
    s = Scenario(node("node-1", gpus=2))
    s.etjob(workers=3)
    assert s.job().phase is Phase.RUNNING
    assert "job-worker-2 waits" in s.job().reason
    assert objection(s.job(), "scalein", 1, (), None) is None


# --- and what it costs ------------------------------------------------------------------------


def test_finished_jobs_are_not_looked_at() -> None:
    s = Scenario()
    for number in range(20):
        s.etjob(f"old-{number}", workers=1)
        s.end("launcher", 0, f"old-{number}")
    s.etjob()
    assert s.cluster.active == frozenset({"default/job"})
    before = s.cluster.jobs
    s.end("worker-0", 1)
    after = s.cluster.jobs
    assert [key for key in after if after[key] is not before[key]] == ["default/job"]


def test_nothing_changes_when_nothing_happens() -> None:
    s = Scenario()
    s.etjob()
    after, given = handle(s.cluster, events.TimePassed(s.now))
    assert after is s.cluster
    assert given == ()
