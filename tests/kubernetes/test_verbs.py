"""The verbs against a real API server, where no operator is needed: what they make and say."""

import inspect
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from midflight.client import Client
from midflight.controller.state import Phase
from midflight.kubernetes import names
from midflight.kubernetes.api import connection
from midflight.kubernetes.api.paths import path
from midflight.kubernetes.client import KubernetesClient
from tests.kubernetes.plane.api import MERGE, Api
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.verb_site import SUBMIT, Site
from tests.kubernetes.verb_terminal import typing_in

JOBS = names.TRAININGJOB
REPLICAS = "spec.etReplicaSpecs.worker.replicas"


@pytest.fixture
def site(plane: Plane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with typing_in(plane, tmp_path, capfd) as made:
        yield made


def test_a_cluster_has_every_method_that_the_server_has() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            own = getattr(KubernetesClient, name)
            assert inspect.signature(own) == inspect.signature(method), name


# --- submit ---------------------------------------------------------------------------------------


def test_submitting_creates_the_objects_in_order_and_says_so(site: Site, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("level: debug\n")
    said = site.submit("demo", f"--config-file={tmp_path}/app.yaml:/etc/app/app.yaml")
    first, second = said.out.splitlines()
    assert first.startswith("configmap/demo-") and first.endswith(" created")
    assert second == "trainingjob.kai.alibabacloud.com/demo created"
    assert "The Job demo has been submitted successfully" in said.err
    assert f"get demo --type etjob -n {site.namespace}` to check the job status" in said.err
    job = site.get(JOBS, "demo")
    assert job is not None
    assert job["metadata"]["annotations"]["arena.kubeflow.org/username"] == "admin"
    held = site.get("ConfigMap", first.split()[0].partition("/")[2])
    assert held is not None
    assert held["data"] == {"app.yaml": "level: debug\n"}
    (owner,) = held["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (JOBS, job["metadata"]["uid"])


def test_what_belongs_to_a_job_goes_with_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("x")
    said = site.submit("demo", f"--config-file={tmp_path}/app.yaml:/etc/app/app.yaml")
    name = said.out.split()[0].partition("/")[2]
    assert "The training job demo has been deleted" in site.types("delete", "demo").err
    assert site.get(JOBS, "demo") is None
    for event, _ in site.api.watch(path("ConfigMap", site.namespace), 30):
        if event in ("LISTED", "DELETED") and site.get("ConfigMap", name) is None:
            return
    raise AssertionError(f"{name} is still there")


def test_a_name_that_is_taken_is_refused_whatever_kind_of_job_has_it(site: Site) -> None:
    site.submit("demo")
    again = site.types(*SUBMIT, "--name=demo", "train", code=1)
    assert "the job demo is already exist, please delete it first. use 'arena delete" in again.err
    other = site.types("submit", "pytorch", "--name=demo", "--image=i", "train", code=1)
    assert "the job demo is already exist" in other.err


def test_a_job_of_somebody_else_is_said_to_be_theirs(site: Site) -> None:
    site.submit("demo")
    change = {"metadata": {"annotations": {"arena.kubeflow.org/username": "eve"}}}
    site.api.call("PATCH", path(JOBS, site.namespace, "demo"), change, MERGE)
    said = site.types(*SUBMIT, "--name=demo", "train", code=1)
    assert "owned by other user,you have no privileges to operate it: it is eve's" in said.err


def test_a_job_that_the_api_server_refuses_leaves_nothing_behind(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "app.yaml").write_text("x")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {f"count/trainingjobs.{names.GROUP}": "0"}},
    }
    site.api.call("POST", path("ResourceQuota", site.namespace), quota)
    _await_quota(site.api, path("ResourceQuota", site.namespace))
    before = _config_maps(site)
    flag = f"--config-file={tmp_path}/app.yaml:/etc/app/app.yaml"
    said = site.types(*SUBMIT, "--name=demo", flag, "train", code=1)
    assert "exceeded quota: few" in said.err and "delete jobs that are over" in said.err
    assert _config_maps(site) == before
    assert site.get(JOBS, "demo") is None


def _await_quota(api: Api, where: str) -> None:
    for _, found in api.watch(where, 30):
        if (found.get("status") or {}).get("used"):
            return
    raise AssertionError("nobody counts what the quota is about")


def _config_maps(site: Site) -> set[str]:
    """The ConfigMaps of the namespace, without the one that Kubernetes adds when it comes to it."""
    found = site.api.call("GET", path("ConfigMap", site.namespace))["items"]
    return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}


def test_what_is_wrong_with_a_job_is_said_before_anything_is_made(site: Site) -> None:
    said = site.types(*SUBMIT, "--name=demo", "-p", "high", "train", code=2)
    assert "the priority high doesn't exist. Please check with `kubectl get pc`" in said.err
    said = site.types("submit", "et", "--name=demo", "train", code=2)
    assert "--image must be set" in said.err
    said = site.types(*SUBMIT, "--name=demo", "--config-file=/no/x:/etc/x", "train", code=2)
    assert "--config-file /no/x cannot be read" in said.err
    said = site.types(*SUBMIT, "--name=demo", "--working-dir=code", "train", code=2)
    assert "--working-dir must be absolute" in said.err
    assert site.get(JOBS, "demo") is None


def test_a_dry_run_prints_the_manifests_and_makes_nothing(site: Site) -> None:
    said = site.submit("demo", "--dry-run", "--sync-mode=git", "--sync-source=https://e.org/a.git")
    (job,) = yaml.safe_load_all(said.out)
    assert (job["kind"], job["metadata"]["namespace"]) == (JOBS, site.namespace)
    container = job["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]["containers"][0]
    assert container["workingDir"] == "/root"
    assert os.environ["PATH"] not in said.out
    secret = (
        "--sync-mode=git",
        "--sync-source=https://e.org/a.git",
        "-e",
        "GIT_SYNC_PASSWORD=geheim",
    )
    said = site.submit("demo", "--dry-run", "-o=json", *secret)
    assert [each["kind"] for each in json.loads(said.out)["items"]] == ["Secret", JOBS]
    assert "geheim" not in said.out + said.err
    assert "secrets are hidden: GIT_SYNC_PASSWORD" in said.err
    assert site.get(JOBS, "demo") is None


def test_a_dry_run_needs_no_cluster_that_answers(site: Site, tmp_path: Path) -> None:
    config = json.loads(site.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "away").write_text(json.dumps(config))
    said = site.types(*SUBMIT, "--name=demo", "--dry-run", "train", config=tmp_path / "away")
    assert yaml.safe_load(said.out)["metadata"]["name"] == "demo"


# --- list, get and delete -------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_with_their_phases(site: Site) -> None:
    assert site.types("list").lines == [["NAME", "STATUS", "TRAINER", "AGE", "NODE"]]
    site.submit("waits", "--queue")
    site.submit("runs")
    site.types("submit", "pytorch", "--name=py", "--image=i", "--workers=2", "train")
    site.pod("runs", "launcher", schedulerName="nobody")
    where = path("Pod", site.namespace, "runs-launcher", "status")
    site.api.call("PATCH", where, {"status": {"phase": "Running", "hostIP": "10.0.0.9"}}, MERGE)
    site.state("runs")
    rows = {line[0]: line[1:] for line in site.types("list").lines}
    assert rows["runs"][:2] == ["RUNNING", "ETJOB"] and rows["runs"][-1] == "10.0.0.9"
    assert rows["waits"][:2] == ["QUEUING", "ETJOB"] and rows["waits"][-1] == "N/A"
    assert rows["py"][:2] == ["PENDING", "PYTORCHJOB"]
    assert site.types("list", "-T", "py", "-o", "name").out == "py\n"
    everywhere = site.types("list", "-A")
    assert [site.namespace, "runs"] in [line[:2] for line in everywhere.lines]


def test_an_object_that_is_no_job_does_not_hide_the_others(site: Site) -> None:
    site.submit("good")
    site.submit("broken")
    sizes = {"worker": {"minReplicas": 3, "replicas": 2}}  # no schema compares two fields
    change = {"spec": {"etReplicaSpecs": sizes}}
    site.api.call("PATCH", path(JOBS, site.namespace, "broken"), change, MERGE)
    rows = {line[0]: line[1] for line in site.types("list").lines}
    assert rows["good"] == rows["broken"] == "PENDING"
    assert "Reason:" in site.types("get", "broken").out
    said = site.types("scaleout", "et", "--name=broken", code=1)
    assert "the job broken cannot be understood" in said.err


def test_a_job_is_shown_with_its_instances_and_their_reasons(site: Site) -> None:
    site.submit("demo", "-l", "team=a")
    site.state("demo", reason="1 of 2 workers run")
    site.pod("demo", "worker-0", nodeSelector={"gpu": "none-like-this"}, schedulerName="nobody")
    shown = site.types("get", "demo", "-o", "json")
    job = json.loads(shown.out)
    assert (job["status"], job["workers"], job["maxWorkers"]) == ("RUNNING", 2, 4)
    assert job["labels"]["team"] == "a"
    assert [each["name"] for each in job["instances"]] == [
        "demo-launcher",
        "demo-worker-0",
        "demo-worker-1",
    ]
    assert [each["status"] for each in job["instances"]] == ["Running", "Pending", "Running"]
    text = site.types("get", "demo").out
    assert "Workers:     2 (1 to 4)" in text and "Reason:      1 of 2 workers run" in text
    said = site.types("get", "nobody", code=1)
    assert f"Not found training job nobody in namespace {site.namespace}" in said.err


def test_deleting_goes_on_after_a_name_that_is_not_there(site: Site) -> None:
    site.submit("one")
    said = site.types("delete", "nope", "one", code=1)
    assert "The training job 'nope' does not exist,skip to delete it" in said.err
    assert "The training job one has been deleted successfully" in said.err
    assert site.get(JOBS, "one") is None


def test_who_asked_for_what_is_told_as_far_as_the_objects_know(site: Site) -> None:
    site.submit("demo")
    site.state("demo")
    site.types("scaleout", "etjob", "--name=demo", "--count=1")
    where = f"{path(JOBS, site.namespace, 'demo')}?fieldManager=an-editor"
    site.api.call("PATCH", where, {"spec": {"etReplicaSpecs": {"worker": {"replicas": 3}}}}, MERGE)
    found = json.loads(site.types("events", "--who", "demo", "-o", "json").out)
    assert {each["about"] for each in found} == {f"{site.namespace}/demo"}
    said = {each["what"].partition("/demo-")[0]: each for each in found}
    who = {what: (each["user"], each["from"], each["outcome"]) for what, each in said.items()}
    assert who == {
        "create trainingjob/demo": ("admin", "midflight", "done"),
        "create scaleout": ("admin", "midflight", "asked"),
        f"update trainingjob/demo: {REPLICAS}": ("", "an-editor", "done"),
    }


def test_who_deleted_a_job_is_told_when_it_is_gone(site: Site, plane: Plane) -> None:
    site.submit("demo")
    config = plane.kubeconfig_for_user("jane", ["system:masters"])
    site.types("delete", "demo", config=config)
    found = json.loads(site.types("events", "--who", "demo", "-o", "json").out)
    assert [(each["user"], each["what"]) for each in found] == [
        ("admin", "create trainingjob/demo"),
        ("jane", "delete trainingjob/demo"),
    ]
    assert "jane asked for it to be deleted" in json.dumps(
        site.api.call("GET", path("Event", site.namespace))
    )


def test_whoever_may_write_no_events_can_delete(site: Site, plane: Plane) -> None:
    site.submit("demo")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "deleter"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "delete"]}],
    }
    site.api.call("POST", path("Role", site.namespace), role)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}
    bound = {
        "apiVersion": role["apiVersion"],
        "kind": "RoleBinding",
        "metadata": {"name": "deleter"},
        "roleRef": {"apiGroup": subject["apiGroup"], "kind": "Role", "name": "deleter"},
        "subjects": [subject],
    }
    site.api.call("POST", path("RoleBinding", site.namespace), bound)
    site.types("delete", "demo", "--wait=false", config=plane.kubeconfig_for_user("joe"))
    found = json.loads(site.types("events", "--who", "-o", "json").out)
    assert [each["what"] for each in found] == ["create trainingjob/demo"]


def test_events_of_a_job_say_who_submitted_scaled_and_killed(site: Site, plane: Plane) -> None:
    site.submit("demo")
    site.state("demo")
    config = plane.kubeconfig_for_user("jane", ["system:masters"])
    site.types("scaleout", "etjob", "--name=demo", "--count=1", config=config)
    pod = {"metadata": {"name": "demo-worker-0", "labels": {names.JOB: "demo"}}}
    pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
    site.api.call("POST", path("Pod", site.namespace), pod)
    site.types("chaos", "kill", "demo", "demo-worker-0", config=config)
    said = site.types("events", "demo").out
    assert "[SubmitRequested] admin submitted it" in said
    assert "[ScaleRequested] jane asked for it to be scaled: demo-" in said
    assert "[KillRequested] jane asked for demo-worker-0 to be killed" in said
    site.types("delete", "demo", "--wait=false")
    found = json.loads(site.types("events", "--who", "demo", "-o", "json").out)
    what = [(each["user"], each["what"].partition("/demo-1")[0]) for each in found]
    assert ("jane", "create scaleout") in what, "also when it is gone with its job"
    assert ("jane", "delete pod/demo-worker-0") in what
    assert len(found) == len({each["what"] for each in found}), "each is told once"


def test_only_jobs_that_are_over_and_old_are_pruned(site: Site) -> None:
    for name in ("old", "runs"):
        site.submit(name)
        ended = {"phase": Phase.SUCCEEDED, "ended_at": time.time() - 90.0}
        site.state(name, **(ended if name == "old" else {}))
    assert "No job need to be deleted" in site.types("prune", "--since=1h").out
    # It ended earlier than this object was made, so only its end can have been counted from.
    assert "Delete etjob old with Age 1m" in site.types("prune", "--since=1m").out
    assert site.get(JOBS, "runs") is not None


def test_events_of_a_job_are_merged_by_time(site: Site) -> None:
    site.submit("demo")
    for kind, name, at in (("Pod", "demo-launcher", "2"), (JOBS, "demo", "1"), ("Pod", "x", "3")):
        event = {
            "metadata": {"name": f"e-{uuid4().hex}"},
            "involvedObject": {"kind": kind, "name": name, "namespace": site.namespace},
            "reason": f"R{at}",
            "message": "m",
            "type": "Normal",
            "lastTimestamp": f"2026-01-01T00:00:0{at}Z",
        }
        site.api.call("POST", path("Event", site.namespace), event)
    found = json.loads(site.types("events", "demo", "-o", "json").out)
    assert [(each["source"], each["reason"]) for each in found] == [
        ("trainingjob/demo", "R1"),
        ("pod/demo-launcher", "R2"),
        ("trainingjob/demo", "SubmitRequested"),
    ]
    assert "[R1] m" in site.types("get", "demo", "-e").out


# --- the cluster ----------------------------------------------------------------------------------


def test_volumes_are_the_claims_that_are_bound(site: Site) -> None:
    for name, phase in (("data", "Bound"), ("waits", "Pending")):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "annotations": {"description": "mnist", "owner": "me"}},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "none",
            },
        }
        site.api.call("POST", path("PersistentVolumeClaim", site.namespace), claim)
        where = path("PersistentVolumeClaim", site.namespace, name, "status")
        site.api.call("PATCH", where, {"status": {"phase": phase}}, MERGE)
    header, row = site.types("data", "list").lines
    assert header == ["NAME", "ACCESSMODE", "DESCRIPTION", "OWNER", "AGE"]
    assert row[:4] == ["data", "ReadWriteMany", "mnist", "me"]
    assert site.namespace in site.types("data", "list", "-A").out


def test_who_one_is_comes_from_the_cluster_or_the_credentials(site: Site, plane: Plane) -> None:
    assert json.loads(site.types("whoami").out) == {
        "Name": "admin",
        "Id": "21232f297a57a5a743894a0e4a801fc3",
        "IsAdminUser": True,
    }
    nobody = json.loads(site.types("whoami", config=plane.kubeconfig_for_user("jane")).out)
    assert (nobody["Name"], nobody["IsAdminUser"]) == ("jane", False)


def test_what_needs_this_machine_is_refused_in_a_line(site: Site) -> None:
    site.submit("demo")
    said = site.types("up", "--nodes=2", code=1)
    assert "a cluster has the nodes it has" in said.err
    said = site.types("node", "lose", "x", code=1)
    assert "`node lose` is for simulated nodes" in said.err
    site.state("demo")
    said = site.types("chaos", "stop", "demo", code=1)
    assert "on a cluster there is only kill" in said.err


# --- what can go wrong on the way -----------------------------------------------------------------


def test_who_may_not_look_is_told_what_is_missing(site: Site, plane: Plane) -> None:
    said = site.types("list", config=plane.kubeconfig_for_user("jane"), code=1)
    assert "you may not list" in said.err and 'User "jane" cannot list resource' in said.err


def test_who_is_not_known_is_told_to_log_in(site: Site, tmp_path: Path) -> None:
    config = json.loads(site.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "wrong"}
    (tmp_path / "wrong").write_text(json.dumps(config))
    said = site.types("list", config=tmp_path / "wrong", code=1)
    assert "does not know you (401): log in again" in said.err


def test_a_cluster_that_is_not_there_or_not_trusted_is_named(site: Site, tmp_path: Path) -> None:
    config = json.loads(site.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    address = cluster.pop("certificate-authority") and cluster["server"]
    (tmp_path / "strange").write_text(json.dumps(config))
    said = site.types("list", config=tmp_path / "strange", code=1)
    assert f"the certificate of the API server {address}" in said.err
    assert "is not trusted" in said.err and "set certificate-authority" in said.err
    cluster["server"] = "https://127.0.0.1:1"
    (tmp_path / "away").write_text(json.dumps(config))
    said = site.types("list", config=tmp_path / "away", code=1)
    assert "https://127.0.0.1:1" in said.err and "cannot be reached" in said.err


def logging_in(site: Site, folder: Path, script: str) -> Path:
    """A kubeconfig whose user is told by a program, as most clouds have it."""
    config = json.loads(site.kubeconfig.read_text())
    api = "client.authentication.k8s.io/v1"
    program = {"apiVersion": api, "command": "sh", "args": ["-c", script]}
    config["users"][0]["user"] = {"exec": program}
    path = folder / "login.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def test_a_program_can_log_in(site: Site, tmp_path: Path) -> None:
    token = json.loads(site.kubeconfig.read_text())["users"][0]["user"]["token"]
    answer = json.dumps({"status": {"token": token}})
    script = f"echo $KUBERNETES_EXEC_INFO | grep -q ExecCredential && echo '{answer}'"
    site.submit("demo")
    said = site.types("list", config=logging_in(site, tmp_path, script))
    assert said.lines[1][0] == "demo"
    said = site.types("list", config=logging_in(site, tmp_path, "echo no >&2; exit 3"), code=2)
    assert "login.kubeconfig cannot be used" in said.err and "returned 3: no" in said.err
    said = site.types("list", config=logging_in(site, tmp_path, "echo rubbish"), code=2)
    assert "login.kubeconfig cannot be used" in said.err


def test_what_a_job_left_behind_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    flag = f"--config-file={tmp_path}/a:/etc/a"
    name = site.submit("demo", flag).out.split()[0].partition("/")[2]
    change = {"metadata": {"ownerReferences": None}}
    site.api.call("PATCH", path("ConfigMap", site.namespace, name), change, MERGE)
    site.types("delete", "demo")
    said = site.types(*SUBMIT, "--name=demo", flag, "train", code=1)
    assert f"configmap/{name} is already exist, please delete it first" in said.err
    assert site.get(JOBS, "demo") is None


def test_a_namespace_that_is_not_there_has_no_jobs_and_takes_none(site: Site) -> None:
    made = connection.connect(str(site.kubeconfig), namespace="nowhere")
    assert KubernetesClient(made).jobs("nowhere") == []
    made.close()
    said = site.types("-n", "nowhere", *SUBMIT, "--name=demo", "train", code=1)
    assert 'namespaces "nowhere" not found' in said.err
