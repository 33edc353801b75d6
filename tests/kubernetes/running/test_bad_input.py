"""Objects that are wrong, and places that are full: each says why, and harms nobody.

What the schema refuses by itself is in tests/kubernetes/test_crds.py. Here is what only an operator
can see: it answers with a condition and an Event, and goes on as soon as things are set right.
"""

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.plane.api import MERGE, Json
from tests.kubernetes.running.guide_git import Repository, served
from tests.kubernetes.running.jobs import JOB, SLEEP, Jobs, condition, quick
from tests.kubernetes.running.observations import (
    fill_quota,
    open_schema,
    said,
    slow_garbage_collection,
    uids,
    wait_new_pod,
    wait_said,
)
from tests.kubernetes.running.operators import Operators
from tests.kubernetes.running.training import token_secret

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DEFINITION = "trainingjobs.kai.alibabacloud.com"


def wrong(jobs: Jobs, name: str, **more: Any) -> Json:
    return quick(jobs.manifest(name, SLEEP, runIn="launcher", **more))


def container(manifest: Json, role: str = "launcher") -> Json:
    found: Json = manifest["spec"]["etReplicaSpecs"][role]["template"]["spec"]["containers"][0]
    return found


def workers(**fields: Any) -> Json:
    """A merge patch."""
    return {"spec": {"etReplicaSpecs": {"worker": fields}}}


def wait_fetching(jobs: Jobs, name: str, former: str) -> None:
    """The container that fetches the code of a new pod runs."""

    def runs(pod: Json) -> bool:
        first = (pod["status"].get("initContainerStatuses") or [{}])[0]
        return pod["metadata"]["uid"] != former and "running" in first.get("state", {})

    jobs.cluster.wait_for("Pod", jobs.namespace, name, runs)


def failure(jobs: Jobs, name: str) -> str:
    """Why it was refused; no pod of it is there, and it says so everywhere."""
    found = jobs.wait_phase(name, "Failed")
    failed = condition(found, "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "InvalidSpec")
    text = str(failed["message"])
    wait_said(jobs, "InvalidSpec", text)
    assert not [pod for pod in jobs.pods() if pod.startswith(f"{name}-")]
    return text


def test_what_a_schema_cannot_see_is_refused_with_its_field_and_once_corrected_it_runs(jobs: Jobs):
    bounds = wrong(jobs, "bounds", workers=3, least=3, most=2)
    silent, mount = (wrong(jobs, name) for name in ("silent", "mount"))
    del container(silent)["command"]
    container(mount)["volumeMounts"] = [{"name": "out", "mountPath": "/etc/edl"}]
    long = wrong(jobs, "a" * 50)
    wait = wrong(jobs, "wait")
    wait["metadata"]["annotations"] = {"job-supervisor.kube-ai.io/max-wait-time": "soon"}
    for each in (bounds, silent, mount, long, wait):
        jobs.create(each)
    jobs.idle("good", workers=1)
    assert "maxReplicas 2 is less than" in failure(jobs, "bounds")
    assert "launcher.template.spec.containers[0].command is missing" in failure(jobs, "silent")
    assert "/etc/edl is Midflight's own" in failure(jobs, "mount")
    assert "metadata.name" in failure(jobs, "a" * 50)
    assert "max-wait-time" in failure(jobs, "wait")
    jobs.wait_workers("good", 1)
    jobs.cluster.patch(JOB, jobs.namespace, "bounds", workers(maxReplicas=4))
    jobs.wait_workers("bounds", 3)
    assert condition(jobs.get("bounds"), "Failed").get("status", "False") == "False"


def test_what_an_older_schema_lets_through_is_refused_as_well(jobs: Jobs):
    nonsense = wrong(jobs, "nonsense")
    nonsense["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = "three"
    empty = {**nonsense, "metadata": {**nonsense["metadata"], "name": "empty"}, "spec": {}}
    with open_schema(jobs.cluster, DEFINITION, nonsense):
        jobs.create(nonsense)
        jobs.create(empty)
        assert "spec.etReplicaSpecs.worker.maxReplicas" in failure(jobs, "nonsense")
        assert "spec.etReplicaSpecs.launcher" in failure(jobs, "empty")
        for name in ("nonsense", "empty"):
            jobs.cluster.delete(JOB, jobs.namespace, name)
            jobs.cluster.wait_gone(JOB, jobs.namespace, name)


def test_a_running_job_that_is_edited_into_nonsense_goes_on_and_says_so(
    jobs: Jobs, operators: Operators
):
    jobs.idle("idle", workers=2)
    jobs.wait_workers("idle", 2)
    before = uids(jobs)
    jobs.cluster.patch(JOB, jobs.namespace, "idle", workers(minReplicas=9))
    wait_said(jobs, "SpecRefused", "minReplicas 9")
    jobs.delete_pod("idle-worker-0")
    wait_new_pod(jobs, "idle-worker-0", before["idle-worker-0"], "Running")
    jobs.scale_out("idle", "idle-1", 1)
    assert jobs.wait_scaled("ScaleOut", "idle-1")["status"]["phase"] == "ScaleSucceeded"
    since = len(said(jobs, "SpecRefused"))
    operators.stop(operators.leader)
    operators.start()
    jobs.wait_events(lambda found: sum(e["reason"] == "SpecRefused" for e in found) > since)
    second = uids(jobs)["idle-worker-0"]
    jobs.delete_pod("idle-worker-0")  # the next operator looks after it as well
    wait_new_pod(jobs, "idle-worker-0", second, "Running")
    jobs.cluster.patch(JOB, jobs.namespace, "idle", workers(minReplicas=1))
    jobs.wait_workers("idle", 3)
    after = uids(jobs)
    jobs.scale_in("idle", "idle-2", count=1)
    assert jobs.wait_scaled("ScaleIn", "idle-2")["status"]["phase"] == "ScaleSucceeded"
    assert after["idle-worker-1"] == before["idle-worker-1"]


def test_an_image_that_cannot_be_pulled_is_named(jobs: Jobs):
    jobs.create(wrong(jobs, "typo", image="missing/train:1"))
    words = "its image missing/train:1 cannot be pulled"
    found = jobs.wait_for("typo", lambda job: words in condition(job, "Created").get("message", ""))
    assert found["status"]["phase"] == "Created"
    wait_said(jobs, "Failed", "missing/train:1")  # on its pods, as the kubelet says it


def test_a_pod_that_the_api_server_refuses_fails_its_job_after_some_attempts(jobs: Jobs):
    bad = wrong(jobs, "bad", workers=1)
    container(bad, "worker")["resources"]["requests"] = {"nvidia.com/gpu": 2}
    jobs.create(bad)
    found = jobs.wait_phase("bad", "Failed")
    text = condition(found, "Failed")["message"]
    assert "bad-worker-0 could not be started" in text
    assert "spec.containers[0].resources.requests" in text
    assert "bad-worker-0" not in jobs.pods()


def test_a_state_of_an_unknown_format_is_left_alone(jobs: Jobs):
    held = wrong(jobs, "later", workers=1)
    held["metadata"]["annotations"] = {"scheduling.x-k8s.io/suspend": "true"}
    jobs.create(held)
    path = jobs.cluster.path(JOB, jobs.namespace, "later")
    state = {"phase": "Running", "midflight": {"format": 99, "secret": "of a later one"}}
    jobs.cluster.api.call("PATCH", f"{path}/status", {"status": state}, MERGE)
    jobs.cluster.patch(
        JOB,
        jobs.namespace,
        "later",
        {"metadata": {"annotations": {"scheduling.x-k8s.io/suspend": None}}},
    )
    wait_said(jobs, "StateUnknown", "has format 99")
    assert jobs.get("later")["status"].items() >= state.items()
    assert not jobs.pods()
    jobs.cluster.api.call("PATCH", f"{path}/status", {"status": None}, MERGE)
    jobs.wait_workers("later", 1)


def test_jobs_that_another_operator_has_begun_or_ended_are_left_alone(
    jobs: Jobs, operators: Operators
):
    operators.stop_all()
    for name, word in (("begun", "Running"), ("ended", "Succeeded")):
        jobs.idle(name, workers=1)
        path = jobs.cluster.path(JOB, jobs.namespace, name)
        state = {"phase": word, "conditions": [{"type": word, "status": "True"}]}
        jobs.cluster.api.call("PATCH", f"{path}/status", {"status": state}, MERGE)
    operators.start()
    wait_said(jobs, "NotOurs")
    jobs.idle("new", workers=1)
    jobs.wait_workers("new", 1)
    assert {name.partition("-")[0] for name in jobs.pods()} == {"new"}
    assert jobs.get("ended")["status"]["phase"] == "Succeeded"


def test_a_job_that_is_made_again_at_once_has_its_own_things(jobs: Jobs):
    jobs.idle("again", workers=1)
    jobs.wait_workers("again", 1)
    token = token_of(jobs)
    with slow_garbage_collection(jobs.cluster):
        jobs.cluster.delete(JOB, jobs.namespace, "again")
        jobs.cluster.wait_gone(JOB, jobs.namespace, "again")
        uid = jobs.idle("again", workers=1)["metadata"]["uid"]
    jobs.wait_workers("again", 1)
    for kind, name in (("ConfigMap", "state"), ("Service", "launcher")):
        found = jobs.cluster.get(kind, jobs.namespace, f"again-{name}")
        assert found is not None
        assert found["metadata"]["ownerReferences"][0]["uid"] == uid
    assert token_of(jobs) != token


def token_of(jobs: Jobs) -> bytes:
    secret = token_secret(jobs, "again")
    assert secret is not None
    return base64.b64decode(secret["data"]["token"])


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_code_that_cannot_be_fetched_yet_says_why_and_is_fetched_later(jobs: Jobs, tmp_path: Path):
    repository = Repository(tmp_path)
    commit = repository.commit()
    fill_quota(jobs)
    with served(str(repository.folder), repository.served) as source:
        [there] = repository.served.iterdir()
        away = there.rename(tmp_path / "away")
        jobs.create(wrong(jobs, "code", workers=1, sync={"mode": "git", "source": source}))
        wait_said(jobs, "Pending", "its code is not fetched yet: ")
        jobs.cluster.delete("ResourceQuota", jobs.namespace, "full")
        wait_said(jobs, "Pending", "; trying again")
        away.rename(there)
        jobs.wait_workers("code", 1)
    log = jobs.cluster.log(jobs.namespace, "code-worker-0", container="midflight-code")
    assert log.startswith(commit)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_launcher_that_comes_back_while_its_source_is_away_waits_for_it(
    jobs: Jobs, tmp_path: Path
):
    """Its pod failed after ten seconds, and the job with it."""
    repository = Repository(tmp_path)
    commit = repository.commit()
    with served(str(repository.folder), repository.served) as source:
        sync = {"mode": "git", "source": source, "revision": commit}
        jobs.create(wrong(jobs, "back", workers=1, sync=sync))
        jobs.wait_workers("back", 1)
        [there] = repository.served.iterdir()
        away = there.rename(tmp_path / "away")
        before = uids(jobs)
        jobs.delete_pod("back-launcher")
        wait_fetching(jobs, "back-launcher", before["back-launcher"])
        asked = {"container": "midflight-code"}
        jobs.cluster.wait_for_log(jobs.namespace, "back-launcher", "again in 8 s", **asked)
        away.rename(there)
        wait_new_pod(jobs, "back-launcher", before["back-launcher"], "Running")
    assert uids(jobs)["back-worker-0"] == before["back-worker-0"]
    assert jobs.get("back")["status"]["phase"] == "Running"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_quota_on_limits_lets_pods_in_whose_own_containers_have_limits(
    jobs: Jobs, tmp_path: Path
):
    """The containers that prepare a pod had none, so no pod could be created."""
    meta = {"name": "limits", "namespace": jobs.namespace}
    hard = {"limits.cpu": "9", "limits.memory": "9Gi"}
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    jobs.create({**kind, "metadata": meta, "spec": {"hard": hard}})
    enforced = jobs.cluster.wait_for(
        "ResourceQuota", jobs.namespace, "limits", lambda quota: quota.get("status", {}).get("hard")
    )
    assert enforced["status"]["hard"] == hard
    repository = Repository(tmp_path)
    repository.commit()
    with served(str(repository.folder), repository.served) as source:
        limited = wrong(jobs, "limited", workers=1, sync={"mode": "git", "source": source})
        for role in ("launcher", "worker"):
            resources = container(limited, role).setdefault("resources", {})
            resources.setdefault("limits", {}).update(cpu="1", memory="1Gi")
        jobs.create(limited)
        jobs.wait_workers("limited", 1)


def test_things_of_somebody_else_are_left_alone_and_named(jobs: Jobs):
    meta = {"name": "taken-config", "namespace": jobs.namespace}
    jobs.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}})
    meta = {"name": "taken-worker-0", "namespace": jobs.namespace}
    other = {"name": "other", "image": "other", "command": ["sleep", "100"]}
    spec = {"containers": [other], "terminationGracePeriodSeconds": 0}
    jobs.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    jobs.idle("taken", workers=1)
    wait_said(jobs, "Pending", "there is a ConfigMap taken-config already")
    found = jobs.cluster.get("ConfigMap", jobs.namespace, "taken-config")
    assert found is not None
    assert found["data"] == {"a": "b"}
    jobs.cluster.delete("ConfigMap", jobs.namespace, "taken-config")
    wait_said(jobs, "Pending", "there is a Pod taken-worker-0 already")
    assert jobs.pod("taken-worker-0")["spec"]["containers"][0]["name"] == "other"
    jobs.delete_pod("taken-worker-0")
    jobs.wait_workers("taken", 1)


def test_a_scale_object_without_its_job_says_so_and_does_nothing(jobs: Jobs):
    jobs.scale_out("nobody", "lost", 1, timeout=1)
    ended = jobs.wait_scaled("ScaleOut", "lost")
    assert ended["status"]["phase"] == "ScaleFailed"
    assert "no TrainingJob nobody" in condition(ended, "ScaleFailed")["message"]
    jobs.create(quick(jobs.manifest("short", "true", 1, runIn="launcher")))
    jobs.wait_phase("short", "Succeeded")
    jobs.scale_out("short", "late", 1)
    ended = jobs.wait_scaled("ScaleOut", "late")
    assert "SUCCEEDED" in condition(ended, "ScaleFailed")["message"]


def test_statuses_that_somebody_made_up_neither_end_nor_depose_the_operator(
    jobs: Jobs, operators: Operators
):
    jobs.idle("bumped", workers=1)
    state = jobs.wait_workers("bumped", 1)["status"]["midflight"]
    leader, log = operators.leader, operators.log(operators.leader)
    led = log.read_text().count(" leads")
    jobs.scale_out("nobody", "lost", 1, timeout=2)
    damaged = {"conditions": [{"type": "ScaleFailed", "status": "True"}]}
    path = jobs.cluster.path("ScaleOut", jobs.namespace, "lost")
    jobs.cluster.api.call("PATCH", f"{path}/status", {"status": damaged}, MERGE)
    jobs.wait_scaled("ScaleOut", "lost")
    path = jobs.cluster.path(JOB, jobs.namespace, "bumped")
    for version in range(state["version"] + 5, state["version"] + 50, 5):
        raised = {"midflight": {"version": version}}
        jobs.cluster.api.call("PATCH", f"{path}/status", {"status": raised}, MERGE)
    jobs.set_replicas("bumped", 2)
    jobs.wait_workers("bumped", 2)
    assert operators.leader == leader and operators.process(leader).running()
    assert log.read_text().count(" leads") == led
