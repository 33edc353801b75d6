"""Jobs that are held back: by a queue, or by whoever wants them later."""

import pytest

from tests.kubernetes.plane.cluster import phase
from tests.kubernetes.running.jobs import JOB, SLEEP, Jobs, condition, quick
from tests.kubernetes.running.test_pytorchjob import KIND, manifest, shell, wait_pods

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
QUEUE = "scheduling.x-k8s.io/suspend"
SUSPENDED = "job-supervisor.kube-ai.io/job-suspended"


@pytest.mark.parametrize("annotation", [QUEUE, SUSPENDED])
def test_a_job_begins_once_nothing_holds_it_back(jobs: Jobs, annotation: str):
    held = quick(jobs.manifest("held", SLEEP, 1, runIn="launcher"))
    held["metadata"]["annotations"] = {annotation: "true"}
    jobs.create(held)
    jobs.idle("other", workers=1)
    jobs.wait_workers("other", 1)
    found = jobs.wait_phase("held", "Suspended")
    assert annotation in condition(found, "Suspended")["message"]
    assert not [name for name in jobs.pods() if name.startswith("held")]
    change = {"metadata": {"annotations": {annotation: None}}}
    jobs.cluster.patch(JOB, jobs.namespace, "held", change)
    jobs.wait_workers("held", 1)
    assert condition(jobs.get("held"), "Suspended")["status"] == "False"


def test_a_queue_may_give_up_on_a_job(jobs: Jobs):
    held = jobs.manifest("held", SLEEP)
    held["metadata"]["annotations"] = {QUEUE: "true"}
    jobs.create(held)
    jobs.wait_phase("held", "Suspended")
    jobs.cluster.delete(JOB, jobs.namespace, "held")
    jobs.cluster.wait_gone(JOB, jobs.namespace, "held")


def test_a_pytorchjob_that_is_made_suspended_begins_when_that_ends(jobs: Jobs):
    jobs.create(manifest(jobs, "held", shell(SLEEP), workers=0, policy={"suspend": True}))
    jobs.cluster.wait_for(KIND, jobs.namespace, "held", phase("Suspended"))
    assert not jobs.pods()
    change = {"spec": {"runPolicy": {"suspend": False}}}
    jobs.cluster.patch(KIND, jobs.namespace, "held", change)
    wait_pods(jobs, "held-master-0")


def test_a_training_that_is_suspended_stops_and_begins_anew_when_that_ends(jobs: Jobs):
    jobs.counting("count", workers=2, epochs=40)
    jobs.wait_training("count")
    annotate(jobs, "count", "true")
    found = jobs.wait_phase("count", "Suspended")
    assert SUSPENDED in condition(found, "Suspended")["message"]
    assert condition(found, "Running")["status"] == "False"
    jobs.cluster.wait_for_all("Pod", jobs.namespace, lambda pods: not pods)
    annotate(jobs, "count", None)
    jobs.wait_workers("count", 2)
    assert condition(jobs.get("count"), "Suspended")["status"] == "False"
    jobs.wait_training("count", "training with 2 members from step 0")
    jobs.hurry()
    jobs.wait_phase("count", "Succeeded")
    jobs.check_every_sample_once(40)


def annotate(jobs: Jobs, job: str, value: str | None) -> None:
    change = {"metadata": {"annotations": {SUSPENDED: value}}}
    jobs.cluster.patch(JOB, jobs.namespace, job, change)
