"""The custom resources, on a real API server: what it fills in, keeps, drops and refuses.

Most of it is asked as a dry run, so that nothing has to be cleaned up. Rules that relate several
fields (CEL) are dropped by clusters older than 1.23; here only their words are checked.
"""

import copy
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from midflight.kubernetes import names
from midflight.kubernetes.manifests.job import scale_object
from midflight.kubernetes.resources.crds import crds
from midflight.kubernetes.resources.templates import MOST_WORKERS
from tests.kubernetes.plane.api import MERGE, ApiError
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.submissions import SUBMISSIONS

SCHEMA = "1.37"
GOLDEN = Path(__file__).parent / "golden"
DEFINITIONS = {crd["spec"]["names"]["kind"]: crd for crd in crds()}
CORE = {
    "ConfigMap": "/api/v1",
    "Secret": "/api/v1",
    "Service": "/api/v1",
    "PodTemplate": "/api/v1",
    "Deployment": "/apis/apps/v1",
    "NetworkPolicy": "/apis/networking.k8s.io/v1",
}
BY_THE_API_SERVER = (".apiVersion", ".kind", ".metadata")  # which describes them itself
SENTENCE = re.compile(r"[A-Z]\S*( \S+){2,}\.")
Object = dict[str, Any]


def walk(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every schema inside a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}[]")


def schema_of(kind: str) -> Object:
    return dict(DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def pod(**more: Any) -> Object:
    container = {"name": "main", "image": "image", **more}
    return {"spec": {"containers": [container]}}


def new(kind: str, spec: Object) -> Object:
    crd = DEFINITIONS[kind]["spec"]
    version = f"{crd['group']}/{crd['versions'][0]['name']}"
    name = f"j-{uuid.uuid4().hex[:8]}"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def smallest(kind: str) -> Object:
    """The least that is accepted."""
    of_kind: dict[str, Object] = {
        "TrainingJob": {
            "etReplicaSpecs": {"launcher": {"template": pod()}, "worker": {"template": pod()}}
        },
        "PyTorchJob": {"pytorchReplicaSpecs": {"Worker": {"template": pod()}}},
        "ScaleOut": {"toAdd": {"count": 1}, "selector": {"name": "j"}},
        "ScaleIn": {"toDelete": {"podNames": ["j-worker-1"]}, "selector": {"name": "j"}},
    }
    return new(kind, of_kind[kind])


def changed(obj: Object, path: str, value: Any) -> Object:
    """A copy with another value at a path such as spec.toAdd.count."""
    found = copy.deepcopy(obj)
    *outer, last = path.split(".")
    inner = found
    for key in outer:
        inner = inner[int(key)] if isinstance(inner, list) else inner.setdefault(key, {})
    inner[last] = value
    return found


def place(obj: Object, namespace: str) -> str:
    if obj["kind"] in CORE:
        plural = obj["kind"].lower().removesuffix("y") + ("ies" if obj["kind"][-1] == "y" else "s")
        return f"{CORE[obj['kind']]}/namespaces/{namespace}/{plural}"
    plural = DEFINITIONS[obj["kind"]]["spec"]["names"]["plural"]
    return f"/apis/{obj['apiVersion']}/namespaces/{namespace}/{plural}"


def contains(whole: Any, part: Any) -> bool:
    """Whether nothing of `part` got lost or was changed."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


class Desk:
    """Where objects are handed in, in a namespace of their own."""

    def __init__(self, plane: Plane, namespace: str) -> None:
        self.api, self.namespace = plane.api, namespace

    def tries(self, obj: Object) -> Object:
        """What would be stored."""
        here = changed(obj, "metadata.namespace", self.namespace)
        return self.api.call("POST", f"{place(obj, self.namespace)}?dryRun=All", here)

    def creates(self, obj: Object) -> str:
        """The path of it."""
        self.api.call("POST", place(obj, self.namespace), obj)
        return f"{place(obj, self.namespace)}/{obj['metadata']['name']}"

    def refusal(self, obj: Object) -> str:
        with pytest.raises(ApiError) as caught:
            self.tries(obj)
        assert caught.value.status == 422
        return caught.value.message


@pytest.fixture(scope="module")
def desk(plane: Plane) -> Iterator[Desk]:
    name = f"crds-{uuid.uuid4().hex[:8]}"
    plane.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Desk(plane, name)
    plane.api.delete(f"/api/v1/namespaces/{name}")


# --- as definitions -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_a_definition_is_valid_in_a_current_kubernetes(kind: str) -> None:
    kubernetes_validate.validate(DEFINITIONS[kind], SCHEMA, strict=True)
    assert DEFINITIONS[kind]["metadata"]["labels"] == {names.MANAGED_BY: names.MANAGER}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_kubectl_explain_has_a_sentence_for_every_field(kind: str) -> None:
    named = {
        f"{path}.{name}": field.get("description", "")
        for path, schema in walk(schema_of(kind))
        for name, field in schema.get("properties", {}).items()
    }
    own = {path: text for path, text in named.items() if path not in BY_THE_API_SERVER}
    assert {path for path, text in own.items() if not SENTENCE.fullmatch(text)} == set()


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_rules_speak_of_fields_that_exist(kind: str) -> None:
    for path, schema in walk(schema_of(kind)):
        for rule in schema.get("x-kubernetes-validations", []):
            spoken = set(re.findall(r"self\.(\w+)", rule["rule"]))
            assert spoken <= set(schema.get("properties", {})), path


def test_fields_that_a_rule_compares_are_always_there() -> None:
    worker = schema_of("TrainingJob")["properties"]["spec"]["properties"]["etReplicaSpecs"]
    fields = worker["properties"]["worker"]["properties"]
    assert all("default" in fields[f"{word}eplicas"] for word in ("r", "minR", "maxR"))


# --- on the API server ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_a_definition_is_established_and_nothing_of_its_schema_is_lost_but_rules(
    plane: Plane, kind: str
) -> None:
    name = DEFINITIONS[kind]["metadata"]["name"]
    found = plane.api.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions
    schema = copy.deepcopy(schema_of(kind))
    version = plane.api.call("GET", "/version")
    if int(re.sub(r"\D", "", version["minor"])) < 23:
        for _, inner in walk(schema):
            inner.pop("x-kubernetes-validations", None)
    assert contains(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema)


def test_what_was_not_said_is_filled_in(desk: Desk) -> None:
    spec = desk.tries(smallest("TrainingJob"))["spec"]
    assert spec["cleanPodPolicy"] == "Running"
    assert (spec["restartPolicy"], spec["backoffLimit"]) == ("Never", 6)
    assert spec["etReplicaSpecs"]["launcher"]["replicas"] == 1
    worker = spec["etReplicaSpecs"]["worker"]
    assert [worker[f"{word}eplicas"] for word in ("r", "minR", "maxR")] == [1, 1, 1000]
    assert worker["restartPolicy"] == "Always"
    assert desk.tries(smallest("ScaleOut"))["spec"]["timeout"] == 60
    assert desk.tries(smallest("ScaleIn"))["spec"]["timeout"] == 60
    torch = desk.tries(smallest("PyTorchJob"))["spec"]
    assert torch["runPolicy"] == {"cleanPodPolicy": "None"}
    assert torch["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "OnFailure"


WORKER = "spec.etReplicaSpecs.worker"
REFUSED = [
    ("TrainingJob", f"{WORKER}.replicas", 0),
    ("TrainingJob", f"{WORKER}.replicas", MOST_WORKERS + 1),
    ("TrainingJob", f"{WORKER}.minReplicas", MOST_WORKERS + 1),
    ("TrainingJob", f"{WORKER}.minReplicas", 0),
    ("TrainingJob", f"{WORKER}.maxReplicas", -1),
    ("TrainingJob", f"{WORKER}.replicas", "three"),
    ("TrainingJob", f"{WORKER}.restartPolicy", "Sometimes"),
    ("TrainingJob", f"{WORKER}.template", None),
    ("TrainingJob", f"{WORKER}.template.spec.containers", []),
    ("TrainingJob", f"{WORKER}.template.spec.containers", [{"name": "main"}]),
    ("TrainingJob", f"{WORKER}.template.metadata", {"labels": {"a": 1}}),
    ("TrainingJob", f"{WORKER}.template.spec.containers.0.env", [{"name": "A", "value": 1}]),
    ("TrainingJob", f"{WORKER}.template.spec.containers.0.command", "python train.py"),
    ("TrainingJob", WORKER, None),
    ("TrainingJob", "spec.etReplicaSpecs.launcher.replicas", 2),
    ("TrainingJob", "spec.etReplicaSpecs.launcher", None),
    ("TrainingJob", "spec.cleanPodPolicy", "Sometimes"),
    ("TrainingJob", "spec.restartPolicy", "Always"),
    ("TrainingJob", "spec.launcherAttachMode", "telnet"),
    ("TrainingJob", "spec.backoffLimit", -1),
    ("TrainingJob", "spec.slotsPerWorker", 0),
    ("TrainingJob", "spec.activeDeadlineSeconds", 0),
    ("TrainingJob", "spec.runIn", "nowhere"),
    ("TrainingJob", "spec.sync", {"mode": "ftp", "source": "x"}),
    ("TrainingJob", "spec.sync", {"mode": "git"}),
    ("TrainingJob", "spec.sync", {"mode": "git", "source": "--upload-pack=x"}),
    ("TrainingJob", "spec.sync", {"mode": "git", "source": "x", "branch": "-b"}),
    ("TrainingJob", "spec", None),
    ("ScaleOut", "spec.toAdd.count", 0),
    ("ScaleOut", "spec.toAdd.count", MOST_WORKERS + 1),
    ("ScaleOut", "spec.toAdd", None),
    ("ScaleOut", "spec.toAdd", {}),
    ("ScaleOut", "spec.timeout", 0),
    ("ScaleOut", "spec.selector", None),
    ("ScaleOut", "spec.selector.name", ""),
    ("ScaleIn", "spec.toDelete", None),
    ("ScaleIn", "spec.toDelete", {}),
    ("ScaleIn", "spec.toDelete.count", 0),
    ("ScaleIn", "spec.toDelete.podNames", []),
    ("ScaleIn", "spec.toDelete.podNames", [""]),
    ("ScaleIn", "spec.toDelete.podNames", ["a", "a"]),
    ("ScaleIn", "spec.timeout", -5),
    ("PyTorchJob", "spec.pytorchReplicaSpecs", {}),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.replicas", -1),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.replicas", MOST_WORKERS + 1),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Master", {"replicas": 2, "template": pod()}),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.restartPolicy", "Sometimes"),
    ("PyTorchJob", "spec.runPolicy", {"cleanPodPolicy": "Most"}),
    ("PyTorchJob", "spec.elasticPolicy", {"minReplicas": 0}),
    ("PyTorchJob", "spec.elasticPolicy", {"minReplicas": MOST_WORKERS + 1}),
    ("PyTorchJob", "spec.nprocPerNode", "0"),
]


@pytest.mark.parametrize(("kind", "path", "value"), REFUSED)
def test_a_mistake_is_refused_with_its_field(desk: Desk, kind: str, path: str, value: Any) -> None:
    said = desk.refusal(changed(smallest(kind), path, value))
    assert re.sub(r"\.\d+\b", "", path) in said


def test_a_pod_template_is_kept_whole_and_other_unknown_fields_are_dropped(desk: Desk) -> None:
    template = pod(resources={"limits": {"cpu": 1}}, livenessProbe={"exec": {"command": ["a"]}})
    template["spec"] |= {"overhead": {"cpu": "1m"}, "newField": [{"a": None, "b": 1}]}
    sent = changed(smallest("TrainingJob"), f"{WORKER}.template", template)
    found = desk.tries(changed(sent, "spec.replicas", 5))["spec"]
    assert found["etReplicaSpecs"]["worker"]["template"] == template
    assert "replicas" not in found


def test_replicas_are_changed_and_read_through_the_scale_subresource(desk: Desk) -> None:
    path = desk.creates(smallest("TrainingJob"))
    desk.api.call("PATCH", f"{path}/scale", {"spec": {"replicas": 5}}, MERGE)
    found = desk.api.call("GET", path)
    assert found["spec"]["etReplicaSpecs"]["worker"]["replicas"] == 5
    with pytest.raises(ApiError, match=r"worker\.replicas.*greater than or equal to 1"):
        desk.api.call("PATCH", f"{path}/scale", {"spec": {"replicas": 0}}, MERGE)
    status = {"status": {"replicas": 3, "selector": "midflight.dev/job=j"}}
    desk.api.call("PATCH", f"{path}/status", status, MERGE)
    scale = desk.api.call("GET", f"{path}/scale")
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 3, "selector": "midflight.dev/job=j"}


def test_the_workers_of_a_pytorchjob_are_scaled_likewise(desk: Desk) -> None:
    path = desk.creates(smallest("PyTorchJob"))
    desk.api.call("PATCH", f"{path}/scale", {"spec": {"replicas": 0}}, MERGE)
    found = desk.api.call("GET", path)
    assert found["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 0


def test_a_status_is_written_apart_and_keeps_what_the_operator_remembers(desk: Desk) -> None:
    path = desk.creates(smallest("TrainingJob"))
    time = "2026-01-02T03:04:05Z"
    status = {
        "phase": "Running",
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "Running",
                "message": "",
                "lastUpdateTime": time,
                "lastTransitionTime": time,
            }
        ],
        "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2, "failed": 0}},
        "startTime": time,
        "lastReconcileTime": time,
        "currentScaler": "ScaleIn:default/x",
        "restartCount": 1,
        "targetWorkers": ["j-worker-0", "j-worker-1"],
        "currentWorkers": ["j-worker-0"],
        "replicas": 2,
        "selector": "a=b",
        "observedGeneration": 1,
        "midflight": {"version": 3, "job": {"anything": [1, 2.5, None, {"deep": True}]}},
    }
    before = changed(desk.api.call("GET", path), "spec.slotsPerWorker", 4)
    desk.api.call("PUT", f"{path}/status", {**before, "status": status})  # a patch drops null
    found = desk.api.call("GET", path)
    assert found["status"] == status
    assert "slotsPerWorker" not in found["spec"]
    desk.api.call("PATCH", path, {"status": {"phase": "Failed"}}, MERGE)
    assert desk.api.call("GET", path)["status"] == status


@pytest.mark.parametrize(("kind", "field"), [("ScaleOut", "addPods"), ("ScaleIn", "toDeletePods")])
def test_a_scaler_says_what_became_of_it(desk: Desk, kind: str, field: str) -> None:
    path = desk.creates(smallest(kind))
    status = {"phase": "ScaleSucceeded", field: ["j-worker-1"]}
    desk.api.call("PATCH", f"{path}/status", {"status": status}, MERGE)
    assert desk.api.call("GET", path)["status"] == status


@pytest.mark.parametrize("kind", ["scaleout", "scalein"])
def test_what_the_verbs_make_is_accepted(desk: Desk, kind: str) -> None:
    request: Object = {"count": 2, "timeout": 600.0, "partial": True}
    if kind == "scalein":
        request["names"] = ["j-worker-1", "j-worker-2"]
    made = scale_object(kind, "j", "j-1", request)
    assert contains(desk.tries(made), made)


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_what_is_submitted_is_accepted_as_a_whole(desk: Desk, name: str) -> None:
    text = (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")
    *others, job = yaml.safe_load_all(text)
    for obj in (*others, job):
        obj["metadata"]["namespace"] = desk.namespace
        stored = desk.tries(obj)
        obj.pop("stringData", None)
        assert contains(stored, obj)
    spec = job["spec"]
    for part in (spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]).values():
        metadata = {"name": "template"}
        desk.tries({"kind": "PodTemplate", "metadata": metadata, "template": part["template"]})
