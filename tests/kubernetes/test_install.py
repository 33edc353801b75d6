"""What is installed for the operator: its manifests, its rights, deploy/ and the image, all pure.

Installing it for real is in test_installing_for_real.py.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml

from midflight.cli.flags import VerbParser
from midflight.cli.main import main
from midflight.kubernetes import names
from midflight.kubernetes.install import apply, inspection, manifests, rbac
from midflight.kubernetes.operator import manager, pod_options
from midflight.kubernetes.operator.main import add_options
from midflight.kubernetes.operator.metrics import Figures, Metrics
from midflight.kubernetes.pods import PodDefaults, dependents
from midflight.kubernetes.resources.labels import is_ours
from tests.kubernetes.job_objects import job_of, training_job

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
WHOLE = manifests.objects("midflight-system", "midflight:1", 2, "")
FOR_OLD_CLUSTERS = "before-1.25"
OLD_COMPONENT = f"components/{FOR_OLD_CLUSTERS}"
NARROW = manifests.objects("team-a", "midflight:1", 2, "team-a")
CURRENT = kubernetes_validate.latest_version()
Object = dict[str, Any]


def of_kind(objects: list[Object], kind: str, name: str = "midflight-operator") -> Object:
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def container(objects: list[Object]) -> Object:
    [found] = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def identities(objects: list[Object]) -> list[tuple[str, str, str]]:
    return sorted(
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in objects
    )


# --- the manifests --------------------------------------------------------------------------------


@pytest.mark.parametrize("objects", [WHOLE, NARROW], ids=["whole", "narrow"])
def test_every_manifest_is_valid_for_a_current_kubernetes(objects: list[Object]) -> None:
    for one in objects:
        kubernetes_validate.validate(one, CURRENT, strict=True)


def test_an_older_cluster_gets_what_it_understands() -> None:
    old = [apply.as_served(one, (1, 20)) for one in WHOLE]
    assert of_kind(old, "PodDisruptionBudget")["apiVersion"] == "policy/v1beta1"
    assert "x-kubernetes-validations" not in repr(old)
    assert "x-kubernetes-validations" in repr(WHOLE)
    assert [apply.as_served(one, (1, 30)) for one in WHOLE] == WHOLE


@pytest.mark.parametrize(
    ("text", "number"), [("v1.20.2", (1, 20)), ("v1.29+", (1, 29)), ("v1.31.0-rc.1", (1, 31))]
)
def test_a_version_is_read_however_a_cloud_writes_it(text: str, number: tuple[int, int]) -> None:
    assert apply.number(text) == number


def test_the_pod_meets_the_restricted_standard() -> None:
    pod = of_kind(WHOLE, "Deployment")["spec"]["template"]["spec"]
    [only] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(only["resources"]) == {"requests", "limits"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    labels = of_kind(WHOLE, "Namespace", "midflight-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_it_is_told_its_lease_its_image_and_its_scope() -> None:
    whole, narrow = container(WHOLE), container(NARROW)
    assert whole["command"] == ["midflight", "operator", "run"]
    assert "--lease-namespace=$(POD_NAMESPACE)" in whole["args"]
    assert "--runtime-image=$(RUNTIME_IMAGE)" in whole["args"]
    assert {"name": "RUNTIME_IMAGE", "value": "midflight:1"} in whole["env"]
    assert not any("--watch-namespace" in word for word in whole["args"])
    assert "--watch-namespace=$(POD_NAMESPACE)" in narrow["args"]
    elsewhere = manifests.operator("ops", "midflight:1", 1, "team-a")
    assert "--watch-namespace=team-a" in container(elsewhere)["args"]


def test_what_it_is_told_are_options_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["operator", "run", "--help"])
    known = capsys.readouterr().out
    flags = [word.partition("=")[0] for word in container(NARROW)["args"]]
    assert [flag for flag in flags if flag not in known] == []


def test_a_single_replica_has_no_budget_that_would_keep_its_node_from_being_drained() -> None:
    single = manifests.objects(replicas=1)
    assert not [one for one in single if one["kind"] == "PodDisruptionBudget"]
    assert of_kind(WHOLE, "PodDisruptionBudget")["spec"]["minAvailable"] == 1


def test_everything_can_be_told_from_what_others_have_made() -> None:
    labels = [one["metadata"]["labels"] for one in WHOLE]
    assert all(one[names.MANAGED_BY] == names.MANAGER for one in labels)
    # A namespace that was there before is marked and not claimed.
    assert not is_ours(of_kind(NARROW, "Namespace", "team-a"))


def test_pods_of_jobs_let_the_operator_in() -> None:
    for objects, namespace in ((WHOLE, "midflight-system"), (NARROW, "team-a")):
        labels = of_kind(objects, "Namespace", namespace)["metadata"]["labels"]
        assert labels.items() >= {PodDefaults().operator}


def test_the_operator_reaches_api_servers_and_coordinators_on_any_port() -> None:
    spec = of_kind(WHOLE, "NetworkPolicy")["spec"]
    assert spec["egress"] == [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP"}]}]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]


def test_two_installations_share_nothing_but_the_kinds() -> None:
    other = manifests.objects("team-b", "midflight:1", 2, "team-b")
    assert set(identities(NARROW)) & set(identities(other)) == set(identities(manifests.kinds()))


# --- rights ---------------------------------------------------------------------------------------


def granted(rules: list[Object]) -> set[str]:
    """Each verb on each resource as one line; `=NAME` where it is limited to a name."""
    return {
        f"{verb} {resource}{'.' + group if group else ''}{'=' + name if name else ''}"
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or [""]
    }


JOBS = {
    *(
        f"{verb} {kind}"
        for kind in (
            "trainingjobs.kai.alibabacloud.com",
            "scaleouts.kai.alibabacloud.com",
            "scaleins.kai.alibabacloud.com",
            "pytorchjobs.kubeflow.org",
        )
        for verb in ("get", "list", "watch", "patch", "delete")
    ),
    *(
        f"update {kind}/{part}.{group}"
        for kind, group in (
            ("trainingjobs", "kai.alibabacloud.com"),
            ("scaleouts", "kai.alibabacloud.com"),
            ("scaleins", "kai.alibabacloud.com"),
            ("pytorchjobs", "kubeflow.org"),
        )
        for part in ("status", "finalizers")
    ),
    *(f"{verb} pods" for verb in ("create", "delete", "get", "list", "patch", "watch")),
    "get pods/log",
    *(f"{verb} configmaps" for verb in ("create", "get", "patch", "update", "watch")),
    *(f"{verb} services" for verb in ("create", "get")),
    *(f"{verb} serviceaccounts" for verb in ("create", "get")),
    "create secrets",
    "create events",
    *(f"{verb} roles.rbac.authorization.k8s.io" for verb in ("create", "get")),
    *(f"{verb} rolebindings.rbac.authorization.k8s.io" for verb in ("create", "get")),
    *(f"{verb} networkpolicies.networking.k8s.io" for verb in ("create", "get")),
    *(f"{verb} poddisruptionbudgets.policy" for verb in ("create", "get", "patch")),
    *(f"{verb} podgroups.scheduling.x-k8s.io" for verb in ("create", "get")),
    *(f"{verb} podgroups.scheduling.volcano.sh" for verb in ("create", "get")),
}
KINDS = {
    f"get customresourcedefinitions.apiextensions.k8s.io={name}"
    for name in ("trainingjobs.kai.alibabacloud.com", "pytorchjobs.kubeflow.org")
}
NODES = {"list nodes", "watch nodes"}
OWN = {
    "create leases.coordination.k8s.io",
    "get leases.coordination.k8s.io=midflight-operator",
    "update leases.coordination.k8s.io=midflight-operator",
    "create secrets",
    "get secrets=midflight-operator-key",
}


def test_the_operator_may_do_exactly_this() -> None:
    assert granted(of_kind(WHOLE, "ClusterRole")["rules"]) == JOBS | KINDS | NODES
    assert granted(of_kind(WHOLE, "Role")["rules"]) == OWN


def test_an_operator_of_one_namespace_sees_no_other() -> None:
    wide = of_kind(NARROW, "ClusterRole", "midflight-operator-team-a")
    assert granted(wide["rules"]) == KINDS
    role = of_kind(NARROW, "Role", "midflight-operator-jobs")
    assert role["metadata"]["namespace"] == "team-a"
    assert granted(role["rules"]) == JOBS


def test_nothing_is_a_wildcard_and_nobody_may_read_secrets_or_run_in_pods() -> None:
    roles = [one for one in [*WHOLE, *NARROW] if one["kind"] in ("Role", "ClusterRole")]
    lines = {line for one in roles for line in granted(one["rules"])}
    assert not [line for line in lines if "*" in line]
    assert not [line for line in lines if re.match(r"(get|list|watch) secrets$", line)]
    assert not [line for line in lines if re.search("exec|impersonate|escalate|bind ", line)]


def test_the_operator_holds_whatever_it_grants_to_launchers() -> None:
    job = training_job()
    made = dependents.objects(job, job_of(job), "token", PodDefaults())
    grants = granted(of_kind(made, "Role", "elastic-launcher")["rules"])
    assert {line.partition("=")[0] for line in grants} <= JOBS


def test_every_role_is_bound_to_the_operator_and_to_nobody_else() -> None:
    for objects, namespace in ((WHOLE, "midflight-system"), (NARROW, "team-a")):
        bindings = [one for one in objects if one["kind"].endswith("Binding")]
        bound = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings}
        users = {("ClusterRole", rbac.EDIT), ("ClusterRole", rbac.VIEW)}
        roles = {
            (one["kind"], one["metadata"]["name"])
            for one in objects
            if one["kind"] in ("Role", "ClusterRole")
        }
        assert bound == roles - users
        account = {"kind": "ServiceAccount", "namespace": namespace, "name": "midflight-operator"}
        assert all(one["subjects"] == [account] for one in bindings)


def test_ordinary_users_get_the_kinds_with_the_roles_they_have() -> None:
    edit = of_kind(WHOLE, "ClusterRole", "midflight-edit")
    view = of_kind(WHOLE, "ClusterRole", "midflight-view")
    to = "rbac.authorization.k8s.io/aggregate-to-"
    assert edit["metadata"]["labels"].items() >= {f"{to}edit": "true", f"{to}admin": "true"}.items()
    assert f"{to}view" in view["metadata"]["labels"]
    assert f"{to}view" not in edit["metadata"]["labels"]
    may = granted(edit["rules"])
    assert {
        "create trainingjobs.kai.alibabacloud.com",
        "delete scaleins.kai.alibabacloud.com",
    } <= may
    assert {"update trainingjobs/scale.kai.alibabacloud.com"} <= may
    assert not [line for line in may if "/status" in line]
    assert {line.split()[0] for line in granted(view["rules"])} == {"get", "list", "watch"}


def test_the_operator_looks_for_its_lease_and_key_where_it_has_rights() -> None:
    assert rbac.LEASE == manager.LEASE
    assert rbac.KEY_SECRET == manager.KEY_SECRET


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "0 of 2 replicas"),
        ({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2}, "0 of 2"),
        ({"observedGeneration": 3, "updatedReplicas": 1, "availableReplicas": 2}, "1 of 2"),
        (
            {"observedGeneration": 3, "updatedReplicas": 2, "availableReplicas": 2, "replicas": 3},
            "1 of an older version",
        ),
        (
            {"observedGeneration": 3, "updatedReplicas": 2, "availableReplicas": 2, "replicas": 2},
            "",
        ),
    ],
)
def test_it_is_ready_when_all_replicas_are_there_and_none_is_of_an_older_version(
    status: Object, said: str
) -> None:
    deployment = {"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": status}
    found = inspection.lacking(deployment)
    assert found.startswith(said) and bool(found) == bool(said)


# --- deploy/ and the image ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_render", DEPLOY / "render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifests_in_deploy_are_those_that_are_installed(render: ModuleType) -> None:
    for name, text in render.files().items():
        assert (DEPLOY / name).read_text(encoding="utf-8") == text, "run python deploy/render.py"


def test_everything_in_deploy_is_used_and_everything_used_is_there() -> None:
    used = set()
    for file in DEPLOY.rglob("kustomization.yaml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        patches = [one["path"] for one in content.get("patches", []) if "path" in one]
        for path in [*content.get("resources", []), *content.get("components", []), *patches]:
            target = (file.parent / path).resolve()
            assert target.exists(), f"{file} names {path}"
            used.add(target / "kustomization.yaml" if target.is_dir() else target)
    chart = set((DEPLOY / "chart").rglob("*.yaml"))  # see test_chart.py
    rules = set((DEPLOY / "prometheus").rglob("*.yaml"))  # see tests/server/test_metrics_docs.py
    there = {path.resolve() for path in {*DEPLOY.rglob("*.yaml")} - chart - rules}
    tops = {DEPLOY / "overlays" / name / "kustomization.yaml" for name in OVERLAYS}
    assert there - used - tops == set()


@pytest.mark.parametrize("overlay", sorted({*OVERLAYS} - {FOR_OLD_CLUSTERS}))
def test_an_overlay_becomes_valid_manifests_with_one_image(overlay: str) -> None:
    objects = kustomized(DEPLOY / "overlays" / overlay)
    for one in (one for one in objects if not one["apiVersion"].startswith("monitoring.")):
        kubernetes_validate.validate(one, CURRENT, strict=True)
    only = container(objects)
    assert {"name": "RUNTIME_IMAGE", "value": only["image"]} in only["env"]
    if overlay == "default":
        assert identities(objects) == identities(manifests.objects())
    if overlay == "single":
        assert identities(objects) == identities(manifests.objects(replicas=1))


def test_the_strict_network_lets_the_operator_reach_every_coordinator() -> None:
    """Those of PyTorchJobs that run torchrun listen where its nodes meet."""
    file = DEPLOY / "overlays" / "restricted-network" / "network-policy.yaml"
    egress = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["egress"]
    ports = {port["port"] for port in egress[-1]["ports"]}
    assert ports == {names.PORT, names.MASTER_PORT}


def test_alarms_are_about_metrics_that_there_are() -> None:
    text = (DEPLOY / "overlays" / "monitoring" / "monitoring.yaml").read_text(encoding="utf-8")
    monitor, rules = yaml.safe_load_all(text)
    told = Metrics().text(Figures(True, {"Running": 1}, 1, 1, 1, 1))
    kinds = dict(re.findall(r"# TYPE (\w+) (\w+)", told))
    for rule in rules["spec"]["groups"][0]["rules"]:
        for name in re.findall(r"midflight_\w+", rule["expr"]):
            base = re.sub("_(bucket|count|sum)$", "", name)
            assert kinds.get(name, kinds.get(base) == "histogram"), f"{rule['alert']}: {name}"
    service = of_kind(WHOLE, "Service", "midflight-operator-metrics")
    picked = monitor["spec"]["selector"]["matchLabels"]
    assert picked.items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert endpoint["honorLabels"], "`job` would be the name of the Service"


def test_the_overlay_for_old_clusters_is_what_would_be_installed_there() -> None:
    found = kustomized(DEPLOY / "overlays" / FOR_OLD_CLUSTERS)
    wanted = [apply.as_served(one, (1, 20)) for one in manifests.objects()]
    assert identities(found) == identities(wanted)
    assert [one for one in found if one not in wanted] == []


@pytest.mark.parametrize("overlay", sorted({*OVERLAYS} - {FOR_OLD_CLUSTERS}))
def test_every_overlay_becomes_one_for_old_clusters(overlay: str, tmp_path: Path) -> None:
    """Only the default had one."""
    copy = shutil.copytree(DEPLOY, tmp_path / "deploy")
    (copy / "old").mkdir()
    content = {"resources": [f"../overlays/{overlay}"], "components": [f"../{OLD_COMPONENT}"]}
    (copy / "old" / "kustomization.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    wanted = [apply.as_served(one, (1, 20)) for one in kustomized(copy / "overlays" / overlay)]
    assert kustomized(copy / "old") == wanted


def test_an_image_that_is_chosen_in_an_overlay_is_also_what_jobs_are_provided_from(
    tmp_path: Path,
) -> None:
    copy = shutil.copytree(DEPLOY, tmp_path / "deploy")
    file = copy / "overlays" / "default" / "kustomization.yaml"
    chosen = re.sub(r'newTag: ".*"', 'newTag: "7"', file.read_text(encoding="utf-8"))
    file.write_text(chosen, encoding="utf-8")
    only = container(kustomized(file.parent))
    assert only["image"] == "midflight:7"
    assert {"name": "RUNTIME_IMAGE", "value": "midflight:7"} in only["env"]


def kustomized(folder: Path) -> list[Object]:
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl, which has kustomize, is not here")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def instructions(word: str) -> Iterator[str]:
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{word} "):
            yield line.removeprefix(f"{word} ")


def test_the_image_runs_as_the_user_of_the_manifests_and_names_no_registry() -> None:
    assert list(instructions("USER")) == [f"{manifests.USER}:{manifests.USER}"]
    assert all("/" not in line.split()[0] for line in instructions("FROM"))
    assert list(instructions("ENTRYPOINT")) == ['["midflight"]']


# --- the verb -------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_manifests_and_needs_no_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["operator", "install", "--dry-run", "--image", "midflight:1"]) == 0
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == WHOLE
    narrow = ["--namespaced", "team-a", "--image", "midflight:1", "-o", "json"]
    assert main(["operator", "install", "--dry-run", *narrow]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["items"] == NARROW


def test_options_for_the_pods_of_jobs_reach_the_operator_as_they_were_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "--pod-security=baseline",
        "--pod-limit=cpu=4",
        "--pod-limit=memory=8Gi",
        "--pod-toleration=gpu:NoSchedule",
        "--pod-pull-secret=registry",
        "--pod-min-available=0",
    ]
    assert main(["operator", "install", "--dry-run", *words]) == 0
    arguments = container(list(yaml.safe_load_all(capsys.readouterr().out)))["args"]
    assert arguments[-6:] == words
    parser = VerbParser("operator run", "")
    add_options(parser)
    read = pod_options.read(parser.read(arguments))
    assert read == PodDefaults(
        security="baseline",
        limits=(("cpu", "4"), ("memory", "8Gi")),
        tolerations=({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},),
        pull_secrets=("registry",),
        min_available=0,
    )


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["install", "--pod-limit", "cpu"], "NAME=QUANTITY"),
        (["install", "--pod-security", "loose"], "as-written"),
        (["install", "--pod-toleration", "a:b:c:d:e"], "toleration"),
        (["instal"], "operator run|install"),
        (["install", "--replicas", "0"], "from 1"),
        (["uninstall", "--keep-jobs", "--delete-jobs"], "got both"),
        (["status", "--config", "/nowhere"], "/nowhere"),
    ],
)
def test_a_wrong_command_line_is_said_in_one_line(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", *words]) == 2
    said = capsys.readouterr().err
    assert hint in said
    assert said.count("\n") == 1
