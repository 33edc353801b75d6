"""What a job's author is told although nothing keeps the job from running."""

from typing import Any

import pytest

from midflight.controller.commands import Record
from midflight.kubernetes.api.errors import Rejected
from midflight.kubernetes.operator.event_recorder import on_job_without_pod
from midflight.kubernetes.operator.remarks import remarks
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.pod import render
from midflight.kubernetes.pods.security import notes
from midflight.kubernetes.resources.pod import Pod, read_pod
from tests.kubernetes.job_objects import (
    Json,
    chief_of,
    job_of,
    pod_spec,
    pytorch_job,
    training_job,
    worker_of,
)


def pods_of(obj: Json) -> list[Pod]:
    job = job_of(obj)
    made = [render(obj, job, i, PodDefaults()) for i in (chief_of(job), worker_of(job))]
    return [read_pod({**each, "metadata": {**each["metadata"], "uid": "u"}}) for each in made]


def test_of_a_job_that_is_as_it_seems_there_is_nothing_to_say():
    for obj in (training_job(), pytorch_job()):
        assert remarks(obj, pods_of(obj)) == []


def test_a_template_that_is_changed_while_its_pods_run_is_said():
    """Pods with the old and the new image trained together without a word."""
    obj = training_job()
    pods = pods_of(obj)
    pod_spec(obj, "worker")["containers"][0]["image"] = "example/train:2"
    [(reason, text)] = remarks(obj, pods)
    assert reason == "TemplateChanged"
    assert "1 pods run the former one (elastic-worker-0)" in text


def test_another_number_of_workers_is_no_other_template():
    obj = training_job()
    pods = pods_of(obj)
    obj["spec"]["etReplicaSpecs"]["worker"]["replicas"] = 5
    assert remarks(obj, pods) == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"elasticPolicy": {"minReplicas": 1, "metrics": [{"a": 1}]}}, "elasticPolicy.metrics"),
        ({"runPolicy": {"schedulingPolicy": {"queue": "a"}}}, "runPolicy.schedulingPolicy"),
    ],
)
def test_a_field_of_kubeflows_that_has_no_effect_is_named(spec: dict[str, Any], path: str):
    [(reason, text)] = remarks(pytorch_job(**spec), [])
    assert reason == "FieldIgnored"
    assert f"spec.{path} has no effect" in text


@pytest.mark.parametrize(
    ("scheduler", "without_effect"),
    [("", ["queue", "priorityClass"]), ("volcano", ["scheduleTimeoutSeconds"])],
)
def test_what_the_groups_of_a_scheduler_lack_is_named(scheduler: str, without_effect: list[str]):
    policy = {"minAvailable": 3, "queue": "a", "priorityClass": "b", "scheduleTimeoutSeconds": 9}
    obj = pytorch_job(runPolicy={"schedulingPolicy": {**policy, "minResources": {"cpu": 1}}})
    for role in ("Master", "Worker"):
        pod_spec(obj, role)["schedulerName"] = scheduler
    texts = [text for reason, text in remarks(obj, []) if reason == "FieldIgnored"]
    assert [text.split()[0] for text in texts] == [
        f"spec.runPolicy.schedulingPolicy.{key}" for key in without_effect
    ]


def test_an_elastic_policy_that_cannot_be_kept_is_said():
    """Scaling succeeded, and the launcher knew nothing of it."""
    policy = {"minReplicas": 1, "maxReplicas": 4}
    obj = pytorch_job(["accelerate", "launch", "train.py"], elasticPolicy=policy)
    [(reason, text)] = remarks(obj, [])
    assert reason == "FieldIgnored"
    assert "elastic: accelerate counts its nodes when it starts" in text
    spec = job_of(obj).spec
    assert (spec.elastic, spec.least, spec.most) == (False, spec.workers, spec.workers)
    assert remarks(pytorch_job(["accelerate", "launch", "train.py"]), []) == []


def test_privileges_that_a_template_adds_are_said():
    obj = training_job()
    pod_spec(obj, "worker")["hostNetwork"] = True
    assert [reason for reason, _ in remarks(obj, [])] == ["PrivilegesAdded"]


@pytest.mark.parametrize(
    ("where", "said", "note"),
    [
        ("initContainers", {"securityContext": {"privileged": True}}, "are privileged"),
        ("containers", {"securityContext": {"runAsNonRoot": False}}, "may run as root"),
        ("containers", {"securityContext": {"procMount": "Unmasked"}}, "see all of /proc"),
        (
            "containers",
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            "run without seccomp",
        ),
        (
            "initContainers",
            {"securityContext": {"allowPrivilegeEscalation": True}},
            "may gain privileges",
        ),
        (
            "containers",
            {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
            "run without AppArmor",
        ),
        (
            "containers",
            {"ports": [{"containerPort": 1, "hostPort": 22}]},
            "take the port 22 of their node",
        ),
    ],
)
def test_every_privilege_of_a_container_is_noted(where: str, said: Json, note: str) -> None:
    obj = training_job()
    added = {"name": "more", "image": "x", **said}
    spec = pod_spec(obj, "worker")
    spec[where] = [*spec.get(where, ()), added]
    assert notes(obj) == [f"worker pods {note}: their template says so"]


@pytest.mark.parametrize(
    ("key", "said", "note"),
    [
        ("securityContext", {"sysctls": [{"name": "kernel.shm"}]}, "set the sysctl kernel.shm"),
        ("securityContext", {"seLinuxOptions": {"role": "a"}}, "choose an SELinux user or role"),
        ("securityContext", {"seLinuxOptions": {"type": "spc_t"}}, "choose an SELinux type"),
        ("serviceAccountName", "admin", "run as the ServiceAccount admin"),
        ("automountServiceAccountToken", True, "have its token"),
        (
            "volumes",
            [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "b"}}]}}],
            "mount a ServiceAccount's token",
        ),
        ("volumes", [{"name": "a", "nfs": {"server": "b"}}], "mount a volume of the kind nfs"),
        ("volumes", [{"name": "a", "hostPath": {"path": "/"}}], "mount folders of their node"),
    ],
)
def test_every_privilege_of_a_pod_is_noted(key: str, said: object, note: str) -> None:
    obj = training_job()
    pod_spec(obj, "worker")[key] = said
    assert notes(obj) == [f"worker pods {note}: their template says so"]


def test_what_is_said_of_a_pod_that_does_not_exist_is_said_of_its_job():
    record = Record("a/demo", "instance/demo-worker-0", "Warning", "Pending", "no such quantity")
    assert on_job_without_pod(record, {"demo-worker-0"}) == record
    moved = on_job_without_pod(record, {})
    assert (moved.source, moved.message) == ("job/demo", "demo-worker-0: no such quantity")


@pytest.mark.parametrize(("code", "for_good"), [(400, True), (422, True), (403, False)])
def test_a_pod_that_can_never_be_made_is_not_waited_for(code: int, for_good: bool):
    """A quantity that cannot be read is answered with 400, and was tried again for ever."""
    assert Rejected(code, "quantities must match the regular expression").for_good is for_good
