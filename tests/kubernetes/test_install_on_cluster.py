"""Installing, upgrading and removing the operator on a real API server.

On a control plane of its own, without nodes: uninstalling takes the kinds away from everybody. Each
test has a namespace of its own for the operator and leaves the cluster without one.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import midflight
from midflight.cli.main import main
from midflight.kubernetes import names
from midflight.kubernetes.install import manifests
from midflight.kubernetes.pods import PodDefaults, dependents
from tests.kubernetes.foreign_objects import deployment, foreign_crd, webhook
from tests.kubernetes.job_objects import job_of, pytorch_job, training_job
from tests.kubernetes.plane import binaries
from tests.kubernetes.plane.api import MERGE, Api, ApiError
from tests.kubernetes.plane.control import Plane

pytestmark = pytest.mark.slow

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TRAINING = f"{CRDS}/trainingjobs.{names.GROUP}"
PYTORCH = f"{CRDS}/pytorchjobs.{names.PYTORCH_GROUP}"
JOBS = f"/apis/{names.API}/namespaces/default/trainingjobs"
Object = dict[str, Any]
_numbers = count(1)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Bare:
    plane: Plane
    api: Api
    namespace: str  # for the operator of this test
    operator: Callable[..., Said]  # `midflight operator WORD ...`

    def deployment(self) -> Object | None:
        where = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/midflight-operator"
        return self.api.get(where)


@pytest.fixture(scope="module")
def own_plane() -> Iterator[Plane]:
    try:
        programs = binaries.obtain()
    except binaries.Missing as missing:
        pytest.skip(str(missing))
    started = Plane.start(programs)
    yield started
    started.stop()


@pytest.fixture
def bare(
    own_plane: Plane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Bare]:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    monkeypatch.setenv("MIDFLIGHT_LOG_FORMAT", "text")
    namespace = f"operator-{next(_numbers)}"

    def operator(action: str, *words: str, kubeconfig: Path | None = None) -> Said:
        config = str(kubeconfig or own_plane.kubeconfig)
        code = main(["--config", config, "operator", action, "-n", namespace, *words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    made = Bare(own_plane, own_plane.api, namespace, operator)
    yield made
    operator("uninstall", "--yes", "--delete-jobs")
    assert made.deployment() is None
    for crd in own_plane.api.call("GET", CRDS)["items"]:  # those that were not ours to remove
        own_plane.api.delete(f"{CRDS}/{crd['metadata']['name']}")
    await_none(own_plane.api, CRDS)


def job(name: str, **meta: Any) -> Object:
    made = training_job()
    made["metadata"] = {"name": name, **meta}
    return made


def hows(said: Said) -> set[str]:
    return {line.split()[-1] for line in said.out.splitlines()}


def test_installing_makes_everything_and_doing_it_again_changes_nothing(bare: Bare) -> None:
    first = bare.operator("install")
    assert first.code == 0, first.err
    assert hows(first) == {"created"}
    assert f"installed in {bare.namespace}" in first.err
    made = bare.deployment()
    assert made is not None and made["spec"]["replicas"] == 2
    assert bare.api.call("POST", JOBS, job("now"))["kind"] == "TrainingJob"

    again = bare.operator("install")
    assert again.code == 0, again.err
    assert {line for line in again.out.splitlines() if not line.endswith("unchanged")} <= {
        "deployment.apps/midflight-operator configured"  # its status has moved on
    }


def test_an_upgrade_changes_what_differs_and_running_jobs_do_not_notice(bare: Bare) -> None:
    bare.operator("install", "--image", "midflight:1")
    before = bare.api.call("POST", JOBS, job("runs", finalizers=[names.FINALIZER]))
    crd = bare.api.call("GET", TRAINING)
    columns = crd["spec"]["versions"][0].pop("additionalPrinterColumns")
    bare.api.call("PUT", TRAINING, crd)  # as an older version of ours might have had it

    said = bare.operator("install", "--image", "midflight:2", "--replicas", "1")
    assert said.code == 0, said.err
    made = bare.deployment()
    assert made is not None and made["spec"]["replicas"] == 1
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "midflight:2"
    # A budget for one replica would keep its node from ever being drained.
    assert "poddisruptionbudget.policy/midflight-operator deleted" in said.out
    newer = bare.api.call("GET", TRAINING)
    assert newer["metadata"]["uid"] == crd["metadata"]["uid"]
    assert newer["spec"]["versions"][0]["additionalPrinterColumns"] == columns
    after = bare.api.call("GET", f"{JOBS}/runs")
    assert after["metadata"] == before["metadata"]
    assert after["spec"] == before["spec"]


def test_what_somebody_has_changed_by_hand_is_put_right(bare: Bare) -> None:
    bare.operator("install")
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/midflight-operator"
    wide = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    bare.api.call("PATCH", role, {"rules": wide}, MERGE)
    said = bare.operator("install")
    assert "clusterrole.rbac.authorization.k8s.io/midflight-operator configured" in said.out
    assert bare.api.call("GET", role)["rules"] != wide


def test_the_operator_s_account_can_make_all_that_a_job_needs_and_no_more(
    bare: Bare,
) -> None:
    bare.operator("install")
    account = bare.plane.kubeconfig_for_service_account(bare.namespace, "midflight-operator")
    as_operator = Api(account)
    obj = bare.api.call("POST", JOBS, job("whole"))
    obj = {**obj, "apiVersion": names.API, "kind": "TrainingJob"}
    # A Role among them: the API server lets nobody grant what they do not hold.
    for one in dependents.objects(obj, job_of(obj), "token", PodDefaults(), "policy/v1beta1"):
        group = one["apiVersion"]
        kind = one["kind"].lower().replace("policy", "policie") + "s"
        root = "/apis" if "/" in group else "/api"
        made = as_operator.call("POST", f"{root}/{group}/namespaces/default/{kind}", one)
        assert made["metadata"]["uid"]
    with pytest.raises(ApiError) as unknown:  # a right to what this cluster lacks: not 403
        groups = f"/apis/{names.SCHEDULING_API}/namespaces/default/podgroups"
        as_operator.call("POST", groups, {"metadata": {"name": "etjob-whole"}})
    assert unknown.value.status == 404
    for forbidden in (
        "/api/v1/namespaces/default/secrets/whole-token",
        "/api/v1/secrets",
        f"/api/v1/namespaces/{bare.namespace}/secrets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ):
        with pytest.raises(ApiError) as refused:
            as_operator.call("GET", forbidden)
        assert refused.value.status == 403
    with pytest.raises(ApiError) as escalation:
        everything = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        body = {"metadata": {"name": "more"}, "rules": [everything]}
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
        as_operator.call("POST", roles, body)
    assert escalation.value.status == 403


def test_the_operator_itself_gets_along_with_its_rights(bare: Bare, tmp_path: Path) -> None:
    bare.operator("install")
    account = bare.plane.kubeconfig_for_service_account(bare.namespace, "midflight-operator")
    log = tmp_path / "operator.log"
    words = ["--config", str(account), "operator", "run", "--lease-namespace", bare.namespace]
    command = [sys.executable, "-m", "midflight.cli", *words, "--verbose"]
    with log.open("w") as file, subprocess.Popen(command, stderr=file) as operator:
        try:
            bare.api.call("POST", JOBS, job("alive"))
            await_named(bare, "/api/v1/namespaces/default/pods", "alive-worker-0")
            await_named(bare, "/api/v1/namespaces/default/events", "alive.")
            bare.api.delete(f"{JOBS}/alive")
            await_none(bare.api, JOBS)
        finally:
            operator.terminate()
            operator.wait(60)
            print(log.read_text())
    assert operator.returncode == 0, log.read_text()
    assert "forbidden" not in log.read_text()
    assert bare.api.get(f"/api/v1/namespaces/{bare.namespace}/secrets/midflight-operator-key")


def await_named(bare: Bare, path: str, prefix: str) -> None:
    for event, one in bare.api.watch(path, seconds=30):
        if event == "ADDED" and one["metadata"]["name"].startswith(prefix):
            return
    raise AssertionError(f"no {prefix} in 30 s")


def await_none(api: Api, path: str) -> None:
    for event, _ in api.watch(path, seconds=30):
        if event in ("LISTED", "DELETED") and not api.call("GET", path)["items"]:
            return
    raise AssertionError(f"{path} still has some after 30 s")


def test_users_of_the_ordinary_roles_have_the_new_kinds_at_once(bare: Bare) -> None:
    bare.operator("install")
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    for user, role in (("ed", "edit"), ("vi", "view")):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        body = {"metadata": {"name": user}, "roleRef": ref, "subjects": [subject]}
        bare.api.call("POST", bindings, body)
    for _, role in bare.api.watch("/apis/rbac.authorization.k8s.io/v1/clusterroles", seconds=30):
        # The controller that aggregates takes a moment.
        if role.get("metadata", {}).get("name") == "edit" and names.GROUP in json.dumps(role):
            break
    editor = Api(bare.plane.kubeconfig_for_user("ed"))
    viewer = Api(bare.plane.kubeconfig_for_user("vi"))
    editor.call("POST", JOBS, job("theirs"))
    assert viewer.call("GET", f"{JOBS}/theirs")["metadata"]["name"] == "theirs"
    with pytest.raises(ApiError) as refused:
        viewer.call("DELETE", f"{JOBS}/theirs")
    assert refused.value.status == 403


# --- what belongs to others -----------------------------------------------------------------------


def bring(bare: Bare, crd: Object) -> None:
    """Returns when its objects can be made."""
    path = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"
    bare.api.call("POST", path, crd)
    spec = crd["spec"]
    objects = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    deadline = time.monotonic() + 30
    while bare.api.get(objects) is None:
        assert time.monotonic() < deadline, f"{objects} is not served"
        time.sleep(0.05)  # established is said a moment too early


def test_where_kubeflow_is_installed_its_kind_is_left_alone(bare: Bare) -> None:
    bring(bare, foreign_crd("pytorchjobs", names.PYTORCH_API, "PyTorchJob"))
    before = bare.api.call("GET", PYTORCH)
    said = bare.operator("install")
    assert said.code == 0, said.err
    assert "stands back" in said.err
    assert bare.api.call("GET", PYTORCH)["spec"] == before["spec"]
    status = json.loads(bare.operator("status", "-o", "json").out)
    theirs = {one["name"]: one["ours"] for one in status["kinds"]}
    assert theirs == {
        "trainingjobs.kai.alibabacloud.com": True,
        "scaleouts.kai.alibabacloud.com": True,
        "scaleins.kai.alibabacloud.com": True,
        "pytorchjobs.kubeflow.org": False,
    }
    bare.operator("uninstall", "--yes")
    assert bare.api.get(PYTORCH) is not None
    assert bare.api.get(TRAINING) is None


def test_et_operator_s_kinds_are_taken_over_when_that_is_said_and_its_jobs_stay(
    bare: Bare,
) -> None:
    bring(bare, foreign_crd("trainingjobs", names.API, "TrainingJob"))
    theirs = bare.api.call("POST", JOBS, job("theirs"))
    refused = bare.operator("install")
    assert refused.code == 1
    assert "--take-over" in refused.err
    assert bare.deployment() is None

    said = bare.operator("install", "--take-over")
    assert said.code == 0, said.err
    crd = bare.api.call("GET", TRAINING)
    assert not crd["spec"].get("preserveUnknownFields")
    assert "etReplicaSpecs" in json.dumps(crd["spec"]["versions"][0]["schema"])
    owners = {
        (one["manager"], one["operation"])
        for one in crd["metadata"]["managedFields"]
        if "f:spec" in one["fieldsV1"]
    }
    assert owners == {("midflight-install", "Apply")}
    after = bare.api.call("GET", f"{JOBS}/theirs")
    assert after["metadata"]["uid"] == theirs["metadata"]["uid"]


def test_kubeflow_s_jobs_are_taken_over_once_its_operator_is_stopped(bare: Bare) -> None:
    bring(bare, foreign_crd("pytorchjobs", names.PYTORCH_API, "PyTorchJob"))
    jobs = f"/apis/{names.PYTORCH_API}/namespaces/default/pytorchjobs"
    waits = {**pytorch_job(), "metadata": {"name": "waits"}}
    uid = bare.api.call("POST", jobs, waits)["metadata"]["uid"]
    said = {"conditions": [{"type": word, "status": "True"} for word in ("Created", "Running")]}
    bare.api.call("POST", jobs, {**waits, "metadata": {"name": "begun"}, "status": said})
    theirs = deployment("training-operator")
    where = "/apis/apps/v1/namespaces/default/deployments"
    bare.api.call("POST", where, theirs)
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    bare.api.call("POST", hooks, webhook())
    try:
        refused = bare.operator("install", "--take-over")
        assert refused.code == 1
        assert "kubectl scale -n default deployment training-operator --replicas=0" in refused.err
        bare.api.call("PATCH", f"{where}/training-operator", {"spec": {"replicas": 0}}, MERGE)
        await_no_pods(bare, where)
        refused = bare.operator("install", "--take-over")
        assert refused.code == 1
        assert "validatingwebhookconfiguration theirs" in refused.err
        assert bare.deployment() is None
    finally:
        bare.api.delete(f"{where}/training-operator")
        bare.api.delete(f"{hooks}/theirs")

    said = bare.operator("install", "--take-over")
    assert said.code == 0, said.err
    assert "1 PyTorchJobs that Kubeflow's operator had started are left as they are" in said.err
    assert "default/begun" in said.err
    crd = bare.api.call("GET", PYTORCH)
    assert crd["metadata"]["labels"][names.MANAGED_BY] == names.MANAGER
    assert bare.api.call("GET", f"{jobs}/waits")["metadata"]["uid"] == uid


def await_no_pods(bare: Bare, where: str) -> None:
    for _, one in bare.api.watch(where, seconds=30):
        if "spec" in one and not (one.get("status") or {}).get("replicas"):
            return
    raise AssertionError("its pods are still there after 30 s")


def test_a_namespace_that_was_there_before_is_marked_and_stays(bare: Bare) -> None:
    where = f"/api/v1/namespaces/{bare.namespace}"
    bare.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": bare.namespace}})
    before = bare.api.call("GET", where)["metadata"].get("labels")
    said = bare.operator("install", "--namespaced", bare.namespace)
    assert said.code == 0, said.err
    labels = bare.api.call("GET", where)["metadata"]["labels"]
    assert labels == {**(before or {}), manifests.NAME: "midflight-operator"}
    bare.operator("uninstall", "--yes")
    after = bare.api.call("GET", where)
    assert "deletionTimestamp" not in after["metadata"]
    assert after["metadata"].get("labels") == before


def test_two_operators_for_the_same_jobs_are_refused(bare: Bare) -> None:
    bare.operator("install")
    second = bare.operator("install", "-n", "elsewhere")
    assert second.code == 1
    assert f"an operator in {bare.namespace} runs the jobs of all namespaces" in second.err
    assert bare.api.get("/api/v1/namespaces/elsewhere") is None


# --- taking it away -------------------------------------------------------------------------------


def test_uninstalling_leaves_nothing_behind(bare: Bare) -> None:
    before = everything(bare)
    bare.operator("install")
    said = bare.operator("uninstall", "--yes")
    assert said.code == 0, said.err
    assert hows(said) == {"deleted"}
    assert everything(bare) == before
    space = bare.api.get(f"/api/v1/namespaces/{bare.namespace}")
    assert space is None or "deletionTimestamp" in space["metadata"]
    again = bare.operator("uninstall", "--yes")
    assert again.code == 1
    assert "has no operator" in again.err


def everything(bare: Bare) -> set[str]:
    """The names of what belongs to no namespace, and of what is in the operator's."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    here = f"namespaces/{bare.namespace}"
    places = [CRDS, f"{rbac}/clusterroles", f"{rbac}/clusterrolebindings"]
    places += [
        f"{rbac}/{here}/roles",
        f"/apis/apps/v1/{here}/deployments",
        f"/api/v1/{here}/services",
    ]
    return {
        f"{place} {one['metadata']['name']}"
        for place in places
        for one in bare.api.call("GET", place)["items"]
        if "deletionTimestamp" not in one["metadata"]
    }


def test_jobs_are_not_left_without_an_operator_unless_that_is_said(bare: Bare) -> None:
    bare.operator("install")
    before = bare.api.call("POST", JOBS, job("runs", finalizers=[names.FINALIZER]))
    refused = bare.operator("uninstall", "--yes")
    assert refused.code == 1
    assert "1 job would be without an operator" in refused.err
    assert bare.deployment() is not None

    kept = bare.operator("uninstall", "--yes", "--keep-jobs")
    assert kept.code == 0, kept.err
    assert bare.deployment() is None
    assert bare.api.call("GET", f"{JOBS}/runs")["metadata"] == before["metadata"]
    assert bare.api.get(f"/api/v1/namespaces/{bare.namespace}") is not None

    again = bare.operator("install")
    assert again.code == 0, again.err
    gone = bare.operator("uninstall", "--yes", "--delete-jobs")
    assert gone.code == 0, gone.err
    assert "trainingjob.kai.alibabacloud.com/runs deleted" in gone.out
    await_none(bare.api, CRDS)  # a finalizer that was left would hold its kind


def test_nobody_is_asked_where_nobody_can_answer(bare: Bare) -> None:
    bare.operator("install")
    said = bare.operator("uninstall")
    assert said.code == 2
    assert "--yes" in said.err
    assert bare.deployment() is not None


# --- what goes wrong ------------------------------------------------------------------------------


def test_an_operator_that_does_not_get_ready_says_why(bare: Bare) -> None:
    said = bare.operator("install", "--wait", "--timeout", "2s")
    assert said.code == 1
    assert "0 of 2 replicas of the operator are ready (midflight-operator-" in said.err
    assert "no nodes available" in said.err
    assert said.err.count("\n") == 1


def test_status_shows_who_leads_and_fails_where_nobody_does(bare: Bare) -> None:
    nothing = bare.operator("status")
    assert nothing.code == 1
    assert "missing" in nothing.out
    assert "operator install" in nothing.err
    bare.operator("install")
    lease = {
        "metadata": {"name": "midflight-operator"},
        "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 6},
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{bare.namespace}/leases"
    bare.api.call("POST", leases, lease)
    said = bare.operator("status")
    assert said.code == 1  # it leads, but no replica is ready
    [row] = [line for line in said.out.splitlines() if line.startswith(bare.namespace)]
    assert row.split()[1:5] == ["all", midflight.__version__, "0/2", "pod-1"]


def test_without_the_right_to_install_one_line_says_so(bare: Bare) -> None:
    nobody = bare.plane.kubeconfig_for_user("nobody")
    for action in (["install"], ["status"], ["uninstall", "--yes"]):
        said = bare.operator(*action, kubeconfig=nobody)
        assert said.code == 1
        assert said.err.count("\n") == 1
        assert "you may not" in said.err and "nobody" in said.err
    assert bare.api.get(TRAINING) is None
