"""A job's status: what people look for, and the controller's state, which comes back as it was."""

from dataclasses import replace

import pytest

from midflight.controller.events import ScaleAsked
from midflight.controller.handle import handle
from midflight.controller.state import Cluster, Phase, Progress, Stage
from midflight.errors import StoreError
from midflight.kubernetes.resources import replicas, status
from tests.kubernetes.job_objects import chief_of, job_of, pytorch_job, worker_of
from tests.kubernetes.jobs import NOW, running, spec


def as_object(shown: dict) -> dict:
    meta = {"name": "demo", "namespace": "default", "uid": "uid-1"}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {"kind": "TrainingJob", "metadata": meta, "status": shown}


def scaling() -> status.Saved:
    job = running()
    cluster = Cluster(jobs={job.key: job}, placed_elsewhere=True)
    asked = ScaleAsked(NOW, job.key, "demo-1", "scaleout", 1, 60.0)
    cluster, _ = handle(cluster, asked)
    return status.Saved(cluster.jobs[job.key], 7, 2)


def test_the_controllers_state_comes_back_as_it_was():
    saved = scaling()
    shown = status.write(saved, {}, NOW)
    assert status.read(as_object(shown), saved.job.spec) == saved


def test_an_object_that_nobody_has_looked_at_is_pending_and_has_nothing():
    found = status.read(as_object({}), spec())
    assert found.version == 0
    assert (found.job.phase, found.job.instances) == (Phase.PENDING, {})


def test_the_state_of_a_newer_operator_is_left_alone():
    shown = status.write(scaling(), {}, NOW)
    shown["midflight"]["format"] = 99
    with pytest.raises(StoreError, match="format 99"):
        status.read(as_object(shown), spec())


def test_users_of_et_operator_find_what_they_look_for():
    shown = status.write(scaling(), {}, NOW)
    assert shown["phase"] == "Scaling"
    assert shown["currentScaler"] == "ScaleOut:default/demo-1"
    assert shown["currentWorkers"] == ["demo-worker-0", "demo-worker-1"]
    assert shown["targetWorkers"] == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
    assert shown["replicaStatuses"]["Worker"] == {"active": 2, "succeeded": 0, "failed": 0}
    true = {each["type"] for each in shown["conditions"] if each["status"] == "True"}
    assert {"Created", "LauncherCreated", "WorkersReady", "Running", "Scaling"} <= true


def test_a_condition_that_does_not_change_keeps_its_times():
    first = status.write(scaling(), {}, NOW)
    later = status.write(scaling(), first, NOW + 100)
    assert later["conditions"] == first["conditions"]


def test_running_is_over_when_the_job_is():
    saved = scaling()
    first = status.write(saved, {}, NOW)
    done = replace(saved.job, phase=Phase.FAILED, reason="demo-launcher ended with code 3")
    shown = status.write(replace(saved, job=done), first, NOW + 9)
    found = {each["type"]: each for each in shown["conditions"]}
    assert found["Running"]["status"] == "False"
    assert found["Failed"]["status"] == "True"
    assert found["Failed"]["message"] == "demo-launcher ended with code 3"


def test_a_state_of_a_thousand_workers_fits_into_an_object():
    job = running(1000)
    size = len(str(status.write(status.Saved(job, 1, 1000), {}, NOW)))
    assert size < 400_000


def test_a_scale_object_says_how_its_operation_goes():
    operation = scaling().job.operations[0]
    begun = status.scaler_status(operation, {}, NOW, "addPods")
    assert begun["phase"] == "Scaling"
    assert begun["addPods"] == ["demo-worker-2"]
    done = replace(operation, progress=Progress.SUCCEEDED, ended_at=NOW + 3, message="2 to 3")
    over = status.scaler_status(done, begun, NOW + 3, "addPods")
    assert status.is_over({"status": over})
    held = {each["type"]: each["status"] for each in over["conditions"]}
    assert held == {"Scaling": "False", "ScaleSucceeded": "True"}


def test_a_refused_scale_object_says_why_and_is_over():
    shown = status.refused_status("there is no worker of that name", {}, NOW)
    assert status.is_over({"status": shown})
    assert shown["conditions"][0]["message"] == "there is no worker of that name"


def true_ones(shown: dict) -> dict[str, str]:
    return {
        each["type"]: each["message"] for each in shown["conditions"] if each["status"] == "True"
    }


def test_conditions_tell_of_pods_that_there_are_and_of_workers_that_run_now():
    """A quota that lets no pod in left a job with WorkersCreated and WorkersReady."""
    job = running()
    shown = status.write(status.Saved(job, 1, 2), {}, NOW, seen=status.Seen(pods=()))
    assert not {"WorkersCreated", "LauncherCreated"} & true_ones(shown).keys()
    seen = status.Seen(pods=("demo-launcher", "demo-worker-1"))
    shown = status.write(status.Saved(job, 2, 2), shown, NOW, seen=seen)
    assert true_ones(shown)["WorkersCreated"] == "1 of 2 workers"
    waiting = {n: replace(i, stage=Stage.STARTING) for n, i in job.instances.items()}
    shown = status.write(status.Saved(replace(job, instances=waiting), 3, 2), shown, NOW, seen=seen)
    assert "WorkersReady" not in true_ones(shown)


def test_a_pytorchjob_of_workers_alone_counts_all_of_its_pods_as_workers():
    """Its status said 1 where its spec said 2."""
    obj = pytorch_job(elasticPolicy={"minReplicas": 1}, workers=2)
    del obj["spec"]["pytorchReplicaSpecs"]["Master"]
    job = job_of(obj)
    chief, worker = (replace(i, stage=Stage.RUNNING) for i in (chief_of(job), worker_of(job)))
    job = replace(job, instances={i.name: i for i in (chief, worker)})
    assert replicas.has_no_master(obj) and not replicas.has_no_master(pytorch_job())
    seen = status.Seen(worker_only=True)
    shown = status.write(status.Saved(job, 1, 2), {}, NOW, seen=seen)
    assert shown["replicas"] == replicas.workers(obj) == 2
    assert shown["replicaStatuses"] == {"Worker": {"active": 2, "succeeded": 0, "failed": 0}}
    assert shown["selector"] == "midflight.dev/job=fixed,midflight.dev/role in (master,worker)"


def test_an_instance_that_starts_is_not_counted_as_a_current_worker():
    job = running()
    worker = replace(job.instances["demo-worker-1"], stage=Stage.STARTING, node="")
    job = replace(job, instances={**job.instances, "demo-worker-1": worker})
    shown = status.write(status.Saved(job, 1, 2), {}, NOW)
    assert shown["currentWorkers"] == ["demo-worker-0"]
