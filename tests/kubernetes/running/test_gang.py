"""Jobs that gang, on a cluster that knows PodGroups and on one that does not.

Nothing here places a gang: that is a scheduler's business, which reads what is looked at here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from midflight.controller.spec import Container, Kind, Spec
from midflight.kubernetes import names
from midflight.kubernetes.manifests.job import objects_of
from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.running.jobs import JOB, SLEEP, Jobs, condition, quick
from tests.kubernetes.running.observations import CRD
from tests.kubernetes.running.test_pytorchjob import KIND, wait_phase, wait_pods

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DEFINITION = "podgroups.scheduling.x-k8s.io"
SERVED = "v1alpha1.scheduling.x-k8s.io"  # what tells everybody of its version
_SPEC = {
    "type": "object",
    "properties": {"minMember": {"type": "integer", "format": "int32", "minimum": 1}},
}
_VERSION = {
    "name": "v1alpha1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _SPEC}}},
}


@pytest.fixture
def pod_groups(jobs: Jobs) -> Iterator[str]:
    """The kind as scheduler-plugins defines it, as far as we fill it in; its version/kind."""
    cluster = jobs.cluster
    kind = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"}
    body = {"group": "scheduling.x-k8s.io", "scope": "Namespaced", "names": kind}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": CRD}
    cluster.create(
        {**definition, "metadata": {"name": DEFINITION}, "spec": {**body, "versions": [_VERSION]}}
    )
    try:
        cluster.wait_for(CRD, "", DEFINITION, _is("Established"))
        cluster.wait_for("APIService", "", SERVED, _is("Available"))
        yield "scheduling.x-k8s.io/v1alpha1/PodGroup"
        jobs.clear()  # while its group can still be told to go
    finally:
        cluster.delete(CRD, "", DEFINITION)
        cluster.wait_gone(CRD, "", DEFINITION)
        cluster.wait_gone("APIService", "", SERVED)


def _is(kind: str) -> Callable[[Json], bool]:
    return lambda thing: condition(thing, kind).get("status") == "True"


def submit(jobs: Jobs, name: str, kind: Kind = Kind.ETJOB, **more: Any) -> Json:
    """As `submit --gang` does."""
    own = Container(image="train", gang=True)
    given = {"kind": kind, "name": name, "command": SLEEP, "namespace": jobs.namespace}
    (manifest,) = objects_of(Spec(**given, container=own, run_in="launcher", **more), "", {})
    return jobs.create(quick(manifest))


def members(jobs: Jobs) -> dict[str, str | None]:
    """The PodGroup that each pod names."""
    return {
        name: pod["metadata"]["labels"].get("scheduling.x-k8s.io/pod-group")
        for name, pod in jobs.pods().items()
    }


def test_where_nobody_knows_pod_groups_a_gang_has_its_labels_and_runs(jobs: Jobs):
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{jobs.namespace}/podgroups"
    with pytest.raises(ApiError) as unknown:
        jobs.cluster.api.call("GET", path)
    assert unknown.value.status == 404
    submit(jobs, "gang", workers=2, min_workers=1, max_workers=4)
    found = jobs.wait_workers("gang", 2)
    assert found["status"]["phase"] == "Running"
    pods = jobs.pods()
    assert set(pods) == {"gang-launcher", "gang-worker-0", "gang-worker-1"}
    wanted = {names.POD_GROUP: "etjob-gang", names.POD_GROUP_MIN: "2"}
    assert all(wanted.items() <= pod["metadata"]["labels"].items() for pod in pods.values())


def test_a_gang_has_a_group_that_asks_for_what_it_needs_to_begin_and_belongs_to_it(
    jobs: Jobs, pod_groups: str
):
    job = submit(jobs, "gang", workers=3, min_workers=2, max_workers=4)
    jobs.wait_workers("gang", 3)
    group = jobs.cluster.get(pod_groups, jobs.namespace, "etjob-gang")
    assert group is not None
    assert group["spec"] == {"minMember": 3}  # the launcher and two workers
    [owner] = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == (JOB, job["metadata"]["uid"])
    jobs.scale_out("gang", "gang-more", 1)  # who joins later is of the same group
    jobs.wait_workers("gang", 4)
    assert len(members(jobs)) == 5
    assert set(members(jobs).values()) == {"etjob-gang"}


def test_a_gang_of_fixed_size_is_all_of_it_and_who_does_not_gang_has_no_group(
    jobs: Jobs, pod_groups: str
):
    submit(jobs, "all", Kind.PYTORCHJOB, workers=2)
    wait_pods(jobs, "all-master-0", "all-worker-0")
    wait_phase(jobs, "all", "Running")
    group = jobs.cluster.get(pod_groups, jobs.namespace, "pytorchjob-all")
    assert group is not None
    assert group["spec"] == {"minMember": 2}
    assert group["metadata"]["ownerReferences"][0]["kind"] == KIND
    assert set(members(jobs).values()) == {"pytorchjob-all"}
    jobs.idle("alone", workers=1)
    jobs.wait_workers("alone", 1)
    assert len(jobs.cluster.list(pod_groups, jobs.namespace)) == 1
    assert members(jobs)["alone-worker-0"] is None
