"""Which jobs gang: the label on their pods and the PodGroup that it names, or neither of them."""

from typing import Any

import pytest

from midflight.controller.spec import Container, Kind, Spec, Sync
from midflight.kubernetes import names
from midflight.kubernetes.manifests.job import objects_of
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.dependents import objects
from midflight.kubernetes.pods.pod import render
from tests.kubernetes.job_objects import UID, Json, chief_of, job_of, pytorch_job, worker_of

BOUNDS = {"min_workers": 2, "max_workers": 8}
KINDS = [
    pytest.param({"kind": Kind.ETJOB, **BOUNDS}, 3, id="elastic, with its launcher"),
    pytest.param({"kind": Kind.PYTORCHJOB}, 4, id="of fixed size"),
    pytest.param({"kind": Kind.PYTORCHJOB, **BOUNDS}, 2, id="elastic, its master is a worker"),
]


def submitted(gang: bool = True, **spec: Any) -> Json:
    """As the API server hands it out."""
    own = Container(image="train", gang=gang)
    given = {"kind": Kind.ETJOB, "name": "j", "command": "python train.py", "namespace": "team"}
    obj = objects_of(Spec(**{**given, "workers": 4, "container": own, **spec}), "", {})[-1]
    obj["metadata"]["uid"] = UID
    return obj


def templates(obj: Json) -> list[Json]:
    """The chief's, and the workers'."""
    spec = obj["spec"]
    replicas = spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]
    return [each["template"] for each in replicas.values()]


def groups(obj: Json) -> list[Json]:
    made = objects(obj, job_of(obj), "hush", PodDefaults())
    return [each for each in made if each["kind"] == "PodGroup"]


def members(obj: Json) -> list[str | None]:
    """Which PodGroup each pod names."""
    job = job_of(obj)
    pods = [render(obj, job, each, PodDefaults()) for each in (chief_of(job), worker_of(job))]
    return [pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group") for pod in pods]


@pytest.mark.parametrize(("spec", "least"), KINDS)
def test_a_gang_has_a_group_of_what_the_job_needs_to_begin_and_every_pod_names_it(
    spec: dict[str, Any], least: int
) -> None:
    obj = submitted(**spec)
    [group] = groups(obj)
    assert group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert group["spec"] == {"minMember": least}
    meta = group["metadata"]
    assert (meta["name"], meta["namespace"]) == (f"{spec['kind'].value}-j", "team")
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (obj["kind"], UID)
    assert members(obj) == [meta["name"]] * 2
    for template in templates(obj):
        assert template["metadata"]["labels"][names.POD_GROUP_MIN] == str(least)


@pytest.mark.parametrize(("spec", "least"), KINDS)
def test_a_job_that_does_not_gang_has_no_group(spec: dict[str, Any], least: int) -> None:
    _ = least
    obj = submitted(gang=False, **spec)
    assert (groups(obj), members(obj)) == ([], [None, None])


def volcano(obj: Json) -> Json:
    for template in templates(obj):
        template["spec"]["schedulerName"] = "volcano"
    return obj


def test_volcano_has_a_group_of_its_own_kind_which_an_annotation_names() -> None:
    obj = volcano(submitted(**BOUNDS))
    [group] = groups(obj)
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert members(obj) == [None, None]
    job = job_of(obj)
    for each in (chief_of(job), worker_of(job)):
        made = render(obj, job, each, PodDefaults())["metadata"]["annotations"]
        assert made["scheduling.k8s.io/group-name"] == group["metadata"]["name"] == "etjob-j"


def test_a_pytorchjob_may_ask_for_its_gang_in_its_scheduling_policy() -> None:
    policy = {"minAvailable": 3, "queue": "research", "priorityClass": "high"}
    policy |= {"minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60}
    obj = pytorch_job(runPolicy={"schedulingPolicy": policy})
    [group] = groups(obj)
    needs = {"minResources": {"cpu": "3"}}
    assert group["spec"] == {"minMember": 3, **needs, "scheduleTimeoutSeconds": 60}
    assert members(obj) == ["pytorchjob-fixed"] * 2
    [group] = groups(volcano(obj))
    of_volcano = {"queue": "research", "priorityClassName": "high"}
    assert group["spec"] == {"minMember": 3, **of_volcano, **needs}
    del policy["minAvailable"]
    assert groups(obj) == []


def test_a_trainingjob_may_name_the_queue_of_volcano_in_an_annotation() -> None:
    obj = volcano(submitted(**BOUNDS))
    obj["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "research"}
    [group] = groups(obj)
    assert group["spec"] == {"minMember": 3, "queue": "research"}


def test_a_job_of_one_pod_is_a_gang_of_one() -> None:
    [group] = groups(submitted(kind=Kind.PYTORCHJOB, workers=1))
    assert group["spec"]["minMember"] == 1


def test_the_pod_that_looks_for_the_commit_waits_for_nobody() -> None:
    obj = submitted(sync=Sync("git", "https://git.example/a/b.git", "main"))
    assert groups(obj)
    labels = code_pod(obj, job_of(obj), PodDefaults())["metadata"]["labels"]
    assert not {names.POD_GROUP, names.POD_GROUP_MIN, names.POD_GROUP_MEMBER} & set(labels)


@pytest.mark.parametrize("kind", [Kind.ETJOB, Kind.PYTORCHJOB])
def test_what_is_submitted_names_no_group_since_another_operator_would_make_none(
    kind: Kind,
) -> None:
    for template in templates(submitted(kind=kind, **BOUNDS)):
        assert names.POD_GROUP_MEMBER not in template["metadata"]["labels"]


@pytest.mark.parametrize("number", [0, 1], ids=["launcher", "workers"])
def test_a_label_on_some_of_the_pods_makes_no_group_that_would_wait_for_the_others(
    number: int,
) -> None:
    obj = submitted(**BOUNDS)
    del templates(obj)[number]["metadata"]["labels"][names.POD_GROUP]
    assert (groups(obj), members(obj)) == ([], [None, None])


def test_a_group_of_the_users_own_is_left_to_them() -> None:
    obj = submitted(**BOUNDS)
    for template in templates(obj):
        template["metadata"]["labels"][names.POD_GROUP_MEMBER] = "mine"
    assert (groups(obj), members(obj)) == ([], ["mine", "mine"])


@pytest.mark.parametrize(
    ("label", "value"),
    [
        (names.POD_GROUP, "shared-with-others"),
        (names.POD_GROUP_MIN, "0"),
        (names.POD_GROUP_MIN, "all"),
        (names.POD_GROUP_MIN, ""),
        (names.POD_GROUP_MIN, "99999999999"),
    ],
)
def test_labels_that_mean_something_else_stay_and_make_no_group(label: str, value: str) -> None:
    obj = submitted(**BOUNDS)
    for template in templates(obj):
        template["metadata"]["labels"][label] = value
    assert (groups(obj), members(obj)) == ([], [None, None])
    job = job_of(obj)
    assert render(obj, job, worker_of(job), PodDefaults())["metadata"]["labels"][label] == value
