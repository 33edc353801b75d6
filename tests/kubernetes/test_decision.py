"""One pass over a job: pods, scale objects and replicas in; the next state and what to do out."""

from dataclasses import replace
from typing import Any

import pytest

from midflight.controller import events
from midflight.controller.commands import AskResize, FetchCode, StartInstance, StopInstance
from midflight.controller.handle import handle
from midflight.controller.orders import orders
from midflight.controller.spec import Spec, Sync
from midflight.controller.state import Cluster, Code, Job, Phase, Stage
from midflight.kubernetes import names
from midflight.kubernetes.operator.decision import NO_SCRIPT, Decision
from midflight.kubernetes.operator.observed import Observed
from midflight.kubernetes.resources.status import Saved, scaler_status
from tests.kubernetes.jobs import NOW, pod, pods_of, running, spec


class Pass(Decision):
    """With the state that it leads to, and what follows from that."""

    def __init__(self, saved: Saved, spec: Spec, observed: Observed, **more: Any) -> None:
        super().__init__(saved, spec, observed)
        jobs = {saved.job.key: replace(saved.job, spec=spec)} if saved.version else {}
        cluster = Cluster(jobs=jobs, placed_elsewhere=True)
        for told in more.pop("told", ()):
            cluster, _ = handle(cluster, told)
        for step in self.steps:
            for event in step(cluster, observed.now):
                cluster, records = handle(cluster, event)
                self.records += records
        self.job = cluster.jobs.get(self.key)
        self.orders = orders(self.job, replace(observed.instances, **more)) if self.job else []


def decide(
    job: Job | None = None, replicas: int = 2, now: float = NOW, workers: int = 2, **seen: Any
) -> Pass:
    """Of a job whose pods all run, unless it is said; `workers`: what its spec says now."""
    job = job or running()
    seen.setdefault("pods", pods_of(job))
    more = {name: seen.pop(name) for name in ("told", "asking", "asked_before") if name in seen}
    changed = replace(job.spec, workers=workers)
    return Pass(Saved(job, 3, replicas), changed, Observed(now, **seen), **more)


def decide_first(made: Any, **seen: Any) -> Pass:
    """Of a job that no operator has seen before."""
    return Pass(Saved(Job(made, "u", NOW, made.workers)), made, Observed(NOW, **seen))


def scaler(kind: str, name: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
    field = "toAdd" if kind == "ScaleOut" else "toDelete"
    meta = {"name": name, "namespace": "default", "creationTimestamp": "2023-11-14T22:13:20Z"}
    meta["uid"] = more.pop("uid", f"uid-of-{name}")
    body = {"selector": {"name": "demo"}, field: request, "timeout": 60, **more}
    return {"kind": kind, "metadata": meta, "spec": body}


def test_a_new_job_wants_all_of_its_pods_at_once():
    look = decide_first(spec())
    wanted = [each for each in look.orders if isinstance(each, StartInstance)]
    assert [each.instance for each in wanted] == ["demo-launcher", "demo-worker-0", "demo-worker-1"]


def test_it_runs_as_soon_as_the_least_number_of_workers_does():
    up = {name: pod(name) for name in ("demo-launcher", "demo-worker-0")}
    waiting = {
        name: pod(name, "Pending", waits_for="no room", node="")
        for name in ("demo-worker-1", "demo-worker-2")
    }
    look = decide_first(spec(workers=3, min_workers=1), pods=up | waiting)
    assert look.job is not None
    assert look.job.phase is Phase.RUNNING
    assert "no room" in look.job.reason


def test_a_scalein_by_count_takes_a_worker_that_waits_before_one_that_runs():
    job = running()
    waits = replace(job.instances["demo-worker-0"], stage=Stage.STARTING, node="")
    job = replace(job, instances={**job.instances, waits.name: waits})
    pods = {**pods_of(job), waits.name: pod(waits.name, "Pending", waits_for="no room", node="")}
    look = decide(job, pods=pods, scalers=[scaler("ScaleIn", "demo-1", {"count": 1})])
    assert look.job is not None
    assert [o.workers for o in look.job.operations] == [("demo-worker-0",)]


def test_a_scale_object_with_a_script_is_carried_out_and_says_that_the_script_is_not():
    look = decide(scalers=[scaler("ScaleOut", "demo-1", {"count": 1}, script="/scaleout.sh")])
    assert look.job is not None
    assert [o.id for o in look.job.operations] == ["demo-1"]
    assert [r.message for r in look.records if r.reason == "ScriptIgnored"] == [
        f"demo-1: {NO_SCRIPT}"
    ]


def test_a_scale_object_is_accepted_once_and_asks_the_training():
    made = scaler("ScaleOut", "demo-1", {"count": 1})
    look = decide(scalers=[made])
    (request,) = [each for each in look.orders if isinstance(each, AskResize)]
    assert (request.members, request.again) == (3, False)
    again = decide(look.job, scalers=[made], asking={request.request})
    assert again.job is not None
    assert [o.id for o in again.job.operations] == ["demo-1"]
    assert not [each for each in again.orders if isinstance(each, AskResize)]


def test_an_operator_that_takes_over_asks_the_same_request_again():
    look = decide(scalers=[scaler("ScaleOut", "demo-1", {"count": 1})])
    (first,) = [each for each in look.orders if isinstance(each, AskResize)]
    taken_over = decide(look.job, asked_before={first.request})
    assert replace(first, again=True) in taken_over.orders


def test_a_scale_object_of_a_name_that_was_used_before_is_another_one():
    look = decide(scalers=[scaler("ScaleOut", "demo-1", {"count": 1})])
    ended = events.ResizeEnded(NOW, look.key, "demo-1", False, "no")
    look = decide(look.job, told=[ended], pods={})
    assert look.job is not None
    assert [o.source for o in look.job.operations] == ["uid-of-demo-1"]
    again = scaler("ScaleOut", "demo-1", {"count": 1}, uid="another")
    look = decide(look.job, scalers=[again])
    assert look.job is not None
    assert [o.source for o in look.job.operations] == ["another"]


def test_scale_objects_are_carried_out_in_the_order_they_were_made():
    second = scaler("ScaleOut", "demo-b", {"count": 1})
    first = scaler("ScaleOut", "demo-a", {"count": 1})
    look = decide(scalers=[second, first])
    assert look.job is not None
    assert [o.id for o in look.job.operations] == ["demo-a", "demo-b"]


def test_a_mistyped_pod_name_is_refused_and_nobody_leaves():
    look = decide(scalers=[scaler("ScaleIn", "demo-1", {"podNames": ["demo-worker-11"]})])
    assert "demo-worker-11" in look.refusals["uid-of-demo-1"]
    assert look.job is not None
    assert look.job.operations == ()
    assert all(i.stage is Stage.RUNNING for i in look.job.instances.values())


def test_a_scale_object_that_requests_nothing_is_refused():
    bare = scaler("ScaleIn", "demo-1", {})
    bare["spec"] = {"selector": {"name": "demo"}, "toDelete": None}
    look = decide(scalers=[bare])
    assert "at least 1" in look.refusals["uid-of-demo-1"]


def test_bounds_are_kept_by_the_operator():
    look = decide(scalers=[scaler("ScaleOut", "demo-1", {"count": 3})])
    assert "max-workers" in look.refusals["uid-of-demo-1"]
    look = decide(scalers=[scaler("ScaleIn", "demo-2", {"count": 2})])
    assert "min-workers" in look.refusals["uid-of-demo-2"]


def test_a_scale_object_waits_for_a_job_that_does_not_run_yet_and_then_gives_up():
    job = decide_first(spec()).job
    made = scaler("ScaleOut", "demo-1", {"count": 1}, timeout=10)
    assert decide(job, now=NOW + 5, pods={}, scalers=[made]).refusals == {}
    late = decide(job, now=NOW + 11, pods={}, scalers=[made])
    assert "did not run within 10 s" in late.refusals["uid-of-demo-1"]


def test_what_is_over_is_not_looked_at_again():
    done = scaler("ScaleOut", "demo-1", {"count": 1})
    look = decide(scalers=[{**done, "status": {"phase": "ScaleFailed"}}])
    assert look.job is not None
    assert look.job.operations == ()


def test_replicas_that_somebody_wrote_are_a_request():
    look = decide(workers=4)
    assert look.job is not None
    (operation,) = look.job.operations
    assert (operation.kind, operation.count) == ("scaleout", 2)
    assert look.replicas == 4
    assert look.replicas_to is None


def test_replicas_out_of_bounds_are_refused_and_put_back():
    look = decide(workers=9)
    assert look.job is not None
    assert look.job.operations == ()
    assert look.replicas_to == 2
    assert any("max-workers" in record.message for record in look.records)


def test_replicas_follow_what_a_scale_object_has_done():
    job = replace(running(3), wanted=3, spec=spec(workers=2))
    look = decide(job)
    assert look.replicas_to == 3
    assert look.replicas == 2  # whoever dies before that is written will write it again
    assert look.job is not None
    assert look.job.operations == ()


def test_what_we_wrote_ourselves_is_no_request_whatever_is_asked_for_meanwhile():
    look = decide(replicas=4, wrote=2, scalers=[scaler("ScaleOut", "demo-1", {"count": 1})])
    assert look.replicas == 2
    assert look.job is not None
    assert [o.id for o in look.job.operations] == ["demo-1"]


def test_a_number_waits_for_what_is_under_way():
    look = decide(workers=1, scalers=[scaler("ScaleOut", "demo-1", {"count": 1})])
    assert look.replicas == 2
    assert look.job is not None
    assert [o.id for o in look.job.operations] == ["demo-1"]


def test_the_commit_is_what_the_code_pod_left_as_its_last_word():
    sync = Sync("git", "https://example.org/x.git")
    job = replace(running(instances={}), phase=Phase.PENDING, code=Code.FETCHING)
    job = replace(job, spec=spec(sync=sync))
    done = replace(pod("demo-code", "Succeeded", code=0, message="abc\n"), role="code")
    look = decide(job, pods={"demo-code": done})
    assert look.job is not None
    assert (look.job.code, look.job.commit) == (Code.READY, "abc")
    failed = replace(done, phase="Failed", code=128, message="no such repository")
    look = decide(job, pods={"demo-code": failed})
    assert look.job is not None
    assert look.job.phase is Phase.FAILED
    assert "no such repository" in look.job.reason


def test_code_that_is_not_fetched_yet_is_waited_for_unless_it_is_not_there():
    """A source that was away for more than ten seconds failed the job."""
    job = replace(running(instances={}), phase=Phase.PENDING, code=Code.FETCHING)
    job = replace(job, spec=spec(sync=Sync("git", "https://example.org/x.git")))
    tried = replace(pod("demo-code", tried=128, message="a\nno route to host\n"), role="code")
    look = decide(job, pods={"demo-code": tried})
    assert look.job is not None
    assert look.job.code is Code.FETCHING
    assert [each.message for each in look.records] == [
        "its code is not fetched yet: no route to host; trying again"
    ]
    absent = replace(tried, tried=names.NO_SUCH_COMMIT, message="no branch mian")
    look = decide(job, pods={"demo-code": absent})
    assert look.job is not None
    assert (look.job.phase, look.job.reason) == (
        Phase.FAILED,
        "its code could not be fetched: no branch mian",
    )


@pytest.mark.parametrize(
    ("sync", "said", "commit"),
    [
        (Sync("git", "https://example.org/x.git", revision="c0ffee77" * 5), "c0ffee77" * 5, True),
        (Sync("rsync", "host:/x"), "", False),
    ],
)
def test_a_job_begins_when_its_source_has_answered(sync: Sync, said: str, commit: bool):
    """A whole commit, or rsync, was not asked for: the pods came at once, and failed."""
    job = replace(running(instances={}), phase=Phase.PENDING, code=Code.FETCHING)
    job = replace(job, spec=spec(sync=sync))
    look = decide(job, pods={})
    assert look.job is not None
    assert look.job.code is Code.FETCHING
    assert FetchCode(look.key) in look.orders
    tried = replace(pod("demo-code", tried=12, message="no route to host\n"), role="code")
    look = decide(job, pods={"demo-code": tried})
    assert [each.message for each in look.records] == [
        "its code is not fetched yet: no route to host; trying again"
    ]
    done = replace(pod("demo-code", "Succeeded", code=0, message=said), role="code")
    look = decide(job, pods={"demo-code": done})
    assert look.job is not None
    assert (look.job.code, look.job.commit) == (Code.READY, said if commit else "")


def test_a_launcher_that_comes_back_without_its_code_does_not_end_a_training():
    """The job failed, whatever it had trained before."""
    job = running()
    launcher = replace(job.instances["demo-launcher"], stage=Stage.STARTING, attempt=2)
    job = replace(job, started_at=NOW - 9, instances={**job.instances, "demo-launcher": launcher})
    failed = pod("demo-launcher", "Failed", 2, code=128, message="no route\n", without_code=True)
    look = decide(job, pods=pods_of(job, demo_launcher=failed))
    assert look.job is not None
    assert (look.job.phase, look.job.restarts) == (Phase.RUNNING, 0)
    waits = look.job.instances["demo-launcher"]
    assert (waits.stage, waits.failures) == (Stage.PENDING, 1)
    assert waits.reason == "could not be started: its code could not be fetched: no route"
    look = decide(job, pods=pods_of(job, demo_launcher=replace(failed, code=66)))
    assert look.job is not None
    assert look.job.phase is Phase.FAILED


def test_a_lost_launcher_is_started_again_and_the_workers_are_left_alone():
    job = running()
    pods = {name: each for name, each in pods_of(job).items() if name != "demo-launcher"}
    look = decide(job, pods=pods)
    changes = [each for each in look.orders if isinstance(each, StartInstance | StopInstance)]
    assert changes == [StartInstance(look.key, "demo-launcher", 2)]
    assert look.job is not None
    assert look.job.phase is Phase.RUNNING


def test_a_pod_that_cannot_be_made_says_why_and_fails_nothing():
    look = decide_first(spec(), delays={"demo-worker-0": "exceeded quota: few"})
    assert look.job is not None
    assert look.job.phase is Phase.PENDING
    assert look.job.instances["demo-worker-0"].reason == "exceeded quota: few"


def test_an_operation_shows_in_its_object_until_it_is_over():
    look = decide(scalers=[scaler("ScaleIn", "demo-1", {"podNames": ["demo-worker-0"]})])
    ended = events.ResizeEnded(NOW, look.key, "demo-1", True, "2 to 1 member")
    look = decide(look.job, told=[ended])
    assert look.job is not None
    shown = scaler_status(look.job.operations[0], {}, NOW, "toDeletePods")
    assert (shown["phase"], shown["toDeletePods"]) == ("Scaling", ["demo-worker-0"])
