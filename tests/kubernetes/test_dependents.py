"""What stands around a job's pods."""

import base64

import kubernetes_validate
import pytest

from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.dependents import budget, hosts, objects
from midflight.kubernetes.resources.labels import labels_of
from tests.kubernetes.job_objects import (
    UID,
    Json,
    chief_of,
    job_of,
    pod_spec,
    pytorch_job,
    training_job,
    worker_of,
)

TOKEN = names.token_secret("elastic", UID, PodDefaults().key)
ELASTIC = {"elasticPolicy": {"minReplicas": 1}}


def made(obj: Json, pdb_api: str = "policy/v1") -> dict[str, Json]:
    """By kind and name."""
    listed = objects(obj, job_of(obj), "hush", PodDefaults(), pdb_api)
    found = {f"{each['kind']}/{each['metadata']['name']}": each for each in listed}
    assert len(found) == len(listed)
    return found


def picks(selector: Json, labels: dict[str, str]) -> bool:
    """As the API server reads a selector; a Service's is the plain mapping."""
    plain = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
    return plain.items() <= labels.items() and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("obj", [training_job(), pytorch_job(), pytorch_job(**ELASTIC)])
def test_all_of_it_is_valid_and_belongs_to_its_job(obj: Json) -> None:
    for each in made(obj).values():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
        [owner] = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (obj["kind"], UID, True)
        assert each["metadata"]["labels"]["midflight.dev/job"] == obj["metadata"]["name"]
        assert each["metadata"]["namespace"] == "team"


def test_an_elastic_job_has_all_of_it_and_one_of_fixed_size_only_what_it_uses() -> None:
    assert set(made(training_job())) == {
        f"Secret/{TOKEN}",
        "ConfigMap/elastic-config",
        "ConfigMap/elastic-state",
        "ServiceAccount/elastic-launcher",
        "Role/elastic-launcher",
        "RoleBinding/elastic-launcher",
        "Service/elastic-launcher",
        "NetworkPolicy/elastic",
        "PodDisruptionBudget/elastic",
    }
    assert set(made(pytorch_job())) == {
        "Service/fixed-master-0",
        "NetworkPolicy/fixed",
    }


def test_the_token_is_in_its_secret_and_nowhere_else() -> None:
    found = made(training_job())
    token = found.pop(f"Secret/{TOKEN}")["data"]["token"]
    assert base64.b64decode(token) == b"hush"
    assert "hush" not in str(found)
    assert token not in str(found)


def test_the_launchers_account_may_touch_its_state_and_nothing_else() -> None:
    [rule] = made(training_job())["Role/elastic-launcher"]["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["elastic-state"],
        "verbs": ["get", "update", "watch"],
    }


def test_an_account_of_the_users_own_is_given_that_right_instead() -> None:
    obj = training_job()
    pod_spec(obj, "launcher")["serviceAccountName"] = "mine"
    found = made(obj)
    assert "ServiceAccount/elastic-launcher" not in found
    [subject] = found["RoleBinding/elastic-launcher"]["subjects"]
    assert subject["name"] == "mine"


WORKERS_ALONE = pytorch_job(["torchrun", "train.py"], **ELASTIC)
del WORKERS_ALONE["spec"]["pytorchReplicaSpecs"]["Master"]


@pytest.mark.parametrize(
    ("obj", "name", "port"),
    [
        (training_job(), "elastic-launcher", 47100),
        (pytorch_job(**ELASTIC), "fixed-launcher", 47100),
        (pytorch_job(["bash", "train.sh"], **ELASTIC), "fixed-master-0", 23456),
        (pytorch_job(["torchrun", "train.py"], **ELASTIC), "fixed-master-0", 23456),
        (pytorch_job(), "fixed-master-0", 23456),
        (WORKERS_ALONE, "fixed-master-0", 23456),
        (WORKERS_ALONE, "fixed-worker-0", 23456),  # the host that Kubeflow's policy means
    ],
)
def test_the_chief_has_a_name_even_before_it_is_ready(obj: Json, name: str, port: int) -> None:
    job, spec = job_of(obj), made(obj)[f"Service/{name}"]["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert [each["port"] for each in spec["ports"]] == [port]
    assert picks(spec["selector"], labels_of(job.spec, chief_of(job)))
    assert not picks(spec["selector"], labels_of(job.spec, worker_of(job)))


def test_a_job_whose_bounds_are_the_same_can_be_drained() -> None:
    """It had a budget that no drain came to the end of."""
    obj = training_job()
    obj["spec"]["etReplicaSpecs"]["worker"] |= {"replicas": 3, "minReplicas": 3, "maxReplicas": 3}
    assert "PodDisruptionBudget/elastic" not in made(obj)
    obj["metadata"]["annotations"] = {"midflight.dev/min-available": "2"}
    assert made(obj)["PodDisruptionBudget/elastic"]["spec"]["minAvailable"] == 2


def test_an_operator_s_bound_of_budgets_holds_where_no_annotation_does() -> None:
    obj = training_job()
    obj["spec"]["etReplicaSpecs"]["worker"]["minReplicas"] = 2

    def least(most: int) -> int:
        found = budget(obj, job_of(obj).spec, PodDefaults(min_available=most))
        return int(found["spec"]["minAvailable"])

    assert [least(0), least(1), least(5)] == [0, 1, 2]
    obj["metadata"]["annotations"] = {"midflight.dev/min-available": "3"}
    assert least(0) == 3


def test_the_operator_reaches_the_coordinator_of_torchruns_where_they_meet() -> None:
    policy = {**ELASTIC["elasticPolicy"], "rdzvPort": 29400}
    found = made(pytorch_job(["torchrun", "train.py"], elasticPolicy=policy))
    _, operator = found["NetworkPolicy/fixed"]["spec"]["ingress"]
    assert operator["ports"] == [{"protocol": "TCP", "port": 29400}]


def test_pods_hear_their_own_job_and_the_operator_only() -> None:
    obj = training_job()
    job, spec = job_of(obj), made(obj)["NetworkPolicy/elastic"]["spec"]
    among, operator = spec["ingress"]
    for instance in (chief_of(job), worker_of(job)):
        labels = labels_of(job.spec, instance)
        assert picks(spec["podSelector"], labels)
        assert picks(among["from"][0]["podSelector"], labels)
    assert operator["ports"] == [{"protocol": "TCP", "port": 47100}]
    wanted = {"app.kubernetes.io/name": "midflight-operator"}
    assert operator["from"] == [{"namespaceSelector": {"matchLabels": wanted}}]
    assert spec["policyTypes"] == ["Ingress"]


def test_a_drain_takes_workers_of_an_elastic_job_down_to_what_it_needs() -> None:
    obj = training_job()
    obj["spec"]["etReplicaSpecs"]["worker"] |= {"replicas": 4, "minReplicas": 2}
    job, found = job_of(obj), made(obj, "policy/v1beta1")["PodDisruptionBudget/elastic"]
    assert found["apiVersion"] == "policy/v1beta1"
    assert found["spec"]["minAvailable"] == 2 and "maxUnavailable" not in found["spec"]
    assert picks(found["spec"]["selector"], labels_of(job.spec, worker_of(job)))
    assert not picks(found["spec"]["selector"], labels_of(job.spec, chief_of(job)))


def test_the_master_of_an_elastic_pytorchjob_is_one_of_those_it_needs() -> None:
    obj = pytorch_job(elasticPolicy={"minReplicas": 2})
    job, found = job_of(obj), made(obj)["PodDisruptionBudget/fixed"]["spec"]
    assert found["minAvailable"] == 2
    for instance in (chief_of(job), worker_of(job)):
        assert picks(found["selector"], labels_of(job.spec, instance))


@pytest.mark.parametrize(("said", "least"), [(None, None), ("3", 3), ("0", None)])
def test_a_job_of_fixed_size_can_be_drained_unless_it_says_otherwise(
    said: str | None, least: int | None
) -> None:
    obj = pytorch_job()
    obj["metadata"]["annotations"] = {"midflight.dev/min-available": said} if said else {}
    found = made(obj).get("PodDisruptionBudget/fixed", {}).get("spec", {})
    assert found.get("minAvailable") == least


def test_a_number_that_is_none_is_refused() -> None:
    obj = pytorch_job()
    obj["metadata"]["annotations"] = {"midflight.dev/min-available": "all"}
    with pytest.raises(UsageError, match="wanted a number of workers"):
        job_of(obj)


def test_the_hostfile_is_there_in_both_ways_of_writing() -> None:
    obj = training_job()
    found = hosts(obj, {"elastic-worker-0": 2, "elastic-worker-3": 2})
    assert found["metadata"] == made(obj)["ConfigMap/elastic-config"]["metadata"]
    assert found["data"]["hostfile"] == "elastic-worker-0:2\nelastic-worker-3:2\n"
    assert found["data"]["deepspeed_hostfile"].splitlines()[1] == "elastic-worker-3 slots=2"
    assert found["data"]["discover_hosts.sh"] == "#!/bin/sh\nexec cat /etc/edl/hostfile\n"
    assert hosts(obj, {})["data"]["hostfile"] == ""
