"""From command lines to manifests: golden files, what goes where, and what is refused.

Each submission is typed into a shell and read by the real command line. Its manifests are compared
with tests/kubernetes/golden/NAME.yaml by content, and checked against a current schema of
Kubernetes. `MIDFLIGHT_REWRITE_GOLDEN=1 pytest tests/kubernetes/test_manifests.py` writes the files
anew; read what `git diff` says of them before you commit them.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, strategies

from midflight.cli.job_types import to_submit
from midflight.cli.submit_spec import Place, spec_of
from midflight.cli.verbs.submit import parser_of
from midflight.controller.spec import Container, Kind, Spec, Sync
from midflight.controller.spec_check import check
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.manifests.flags import toleration, verbatim
from midflight.kubernetes.manifests.job import objects_of, scale_object
from midflight.kubernetes.names import SYNC
from midflight.kubernetes.resources.job_spec import spec_of as spec_read
from tests.kubernetes.submissions import FILES, SUBMISSIONS

GOLDEN = Path(__file__).parent / "golden"
REWRITE = bool(os.environ.get("MIDFLIGHT_REWRITE_GOLDEN"))
SCHEMA = "1.37"
OWNER = "ada"
Object = dict[str, Any]


def words_of(typed: str) -> list[str]:
    """What a shell makes of a line that begins with `arena submit`."""
    script = f'arena() {{ for word; do printf "%s\\0" "$word"; done; }}\n{typed}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def submitted(typed: str) -> Spec:
    """The spec that the command line makes of it, for a cluster."""
    _, kind, *rest = words_of(typed)
    kind = to_submit(kind)
    options = parser_of(kind).read(rest)
    spec = spec_of(options, kind, {}, Place(Path("/"), Path("/"), {}, cluster=True))
    check(spec)
    return spec


def rendered(name: str) -> list[Object]:
    return objects_of(submitted(SUBMISSIONS[name]), OWNER, FILES)


def golden(name: str) -> list[Object]:
    return list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")))


def templates(job: Object) -> dict[str, Object]:
    """Pod templates of a job, by role."""
    spec = job["spec"]
    parts = spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]
    return {role: part["template"] for role, part in parts.items()}


def as_pods(job: Object) -> Iterator[Object]:
    for role, template in templates(job).items():
        meta = {**template["metadata"], "name": f"{job['metadata']['name']}-{role.lower()}"}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def job(**changes: Any) -> Spec:
    container = Container(image="image", **changes.pop("container", {}))
    kind = changes.pop("kind", Kind.ETJOB)
    usual = {"workers": 2, "min_workers": 1 if kind is Kind.ETJOB else None}
    return Spec(kind=kind, name="j", command="true", container=container, **{**usual, **changes})


def made(**changes: Any) -> Object:
    return objects_of(job(**changes), OWNER, FILES)[-1]


def container(template: Object) -> Object:
    return dict(template["spec"]["containers"][0])


# --- TensorBoard ----------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [False, True])
def test_tensorboard_is_for_nobody_else_unless_it_is_asked_for(opened: bool) -> None:
    """Its NodePort showed the job's data to all who reached a node."""
    spec = job(container={"tensorboard": True, "tensorboard_node_port": opened})
    found = {obj["kind"]: obj for obj in objects_of(spec, OWNER, FILES)}
    assert found["Service"]["spec"]["type"] == ("NodePort" if opened else "ClusterIP")
    assert ("NetworkPolicy" in found) is not opened
    if not opened:
        labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
        policy = found["NetworkPolicy"]["spec"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
        assert "ingress" not in policy and policy["policyTypes"] == ["Ingress"]


# --- golden files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_a_submission_renders_to_its_golden_file(name: str) -> None:
    found = rendered(name)
    if REWRITE:
        text = yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True, width=100)
        (GOLDEN / f"{name}.yaml").write_text(text, encoding="utf-8")
    assert found == golden(name)
    assert "&id" not in (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")  # no YAML anchors


def test_every_golden_file_belongs_to_a_submission() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(SUBMISSIONS)


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_golden_manifests_are_valid_in_a_current_kubernetes(name: str) -> None:
    *others, last = golden(name)
    for obj in (*others, *as_pods(last)):
        kubernetes_validate.validate(obj, SCHEMA, strict=True)


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_what_the_operator_reads_is_what_was_submitted(name: str) -> None:
    spec, read = submitted(SUBMISSIONS[name]), spec_read(golden(name)[-1])
    for field in (
        *("kind", "name", "namespace", "workers", "min_workers", "max_workers", "gpus", "shell"),
        *("run_in", "nproc_per_node", "restart_policy", "backoff_limit", "clean_policy", "spot"),
        *("running_timeout", "ttl_after_finished", "max_wait_time", "working_dir"),
    ):
        assert getattr(read, field) == getattr(spec, field), field
    assert read.command == spec.command
    if spec.kind is Kind.ETJOB:
        assert read.worker_restart_policy == spec.worker_restart_policy
    else:
        assert read.retry == spec.retry
    if spec.sync is not None and read.sync is not None:
        assert replace(read.sync, source="") == replace(spec.sync, source="")
    assert (spec.sync is None) is (read.sync is None)
    assert read.container.priority == spec.container.priority
    assert read.container.sync_image == spec.container.sync_image


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_no_secret_stands_outside_the_secret(name: str) -> None:
    said = [obj for obj in golden(name) if obj["kind"] != "Secret"]
    assert "hush" not in json.dumps(said)


def test_the_parts_of_a_job_come_before_it_and_all_say_whose_they_are() -> None:
    found = golden("everything-etjob")
    kinds = [obj["kind"] for obj in found]
    assert kinds == [
        "ConfigMap",
        "ConfigMap",
        "Secret",
        "Deployment",
        "Service",
        "NetworkPolicy",
        "TrainingJob",
    ]
    for obj in found:
        assert obj["metadata"]["namespace"] == "team"
        assert obj["metadata"]["labels"][names.MANAGED_BY] == names.MANAGER
        assert obj["metadata"]["labels"][names.JOB] == "everything"


# --- what goes where ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "with \"double\" and 'single' quotes, commas",
        "two\nlines\tand a tab",
        "back\\slash",
        "${HOME} $HOME `id` $((1+2))",
        "{{ .Values.x }} # : - ! & * %",
        " leading and trailing ",
        "",
        "ünïcödé \u2028 \x85",
    ],
)
def test_values_of_variables_arrive_as_they_were_given(value: str) -> None:
    template = templates(made(env={"X": value}))["worker"]
    assert {"name": "X", "value": value} in container(template)["env"]
    text = yaml.safe_dump(template, allow_unicode=True)
    assert yaml.safe_load(text) == template


def expanded(text: str, known: dict[str, str]) -> str:
    """What a kubelet makes of a value, as its documentation says."""
    found, at = "", 0
    while at < len(text):
        if text[at] == "$" and text[at + 1 : at + 2] == "$":
            found, at = found + "$", at + 2
        elif text.startswith("$(", at) and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            found, at = found + known.get(name, f"$({name})"), end + 1
        else:
            found, at = found + text[at], at + 1
    return found


@pytest.mark.parametrize(
    "text",
    [
        "echo $$ > pid",
        "echo $(workers) $(date) $(echo $$) $$(x)",
        "horovodrun -np $((${workers}*${gpus})) python x.py",
        "a $(",
        "$$$",
        "$($(workers))",
    ],
)
def test_a_kubelet_changes_nothing_in_commands_and_values(text: str) -> None:
    assert expanded(verbatim(text), {"workers": "3", "date": "no", "x": "no"}) == text


@given(strategies.text(alphabet="$()a ", max_size=12))
def test_that_holds_for_any_text(text: str) -> None:
    assert expanded(verbatim(text), {"a": "no", "aa": "no"}) == text


def test_a_command_that_a_kubelet_leaves_alone_is_shown_as_it_was_typed() -> None:
    command = golden("guide-1")[-1]["spec"]["etReplicaSpecs"]["launcher"]["template"]["spec"]
    text = command["containers"][0]["command"][2]
    assert text.startswith("horovodrun --verbose --log-level=DEBUG -np $((${workers}*${gpus})) ")


def test_only_the_workers_of_an_etjob_get_devices_and_limits() -> None:
    found = templates(made(gpus=2, cpu="4", memory="8Gi", container={"devices": ("x.org/a=1",)}))
    assert container(found["worker"])["resources"] == {
        "limits": {"cpu": "4", "memory": "8Gi", "x.org/a": "1", names.GPU: "2"},
        "requests": {"cpu": "4", "memory": "8Gi"},
    }
    assert "resources" not in container(found["launcher"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container(found["launcher"])[
        "env"
    ]
    shown = [each["name"] for each in container(found["worker"])["env"]]
    assert "NVIDIA_VISIBLE_DEVICES" not in shown


def test_a_worker_without_gpus_sees_none_unless_it_shares_some() -> None:
    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert void in container(templates(made())["worker"])["env"]
    shared = templates(made(container={"devices": ("aliyun.com/gpu-mem=3",)}))
    assert void not in container(shared["worker"])["env"]


def test_sizes_win_over_variables_of_the_same_name() -> None:
    found = container(templates(made(env={"workers": "99", "A": "1"}))["launcher"])["env"]
    assert [each["value"] for each in found if each["name"] == "workers"] == ["2"]


@pytest.mark.parametrize(
    ("kind", "bounds", "least"),
    [
        (Kind.ETJOB, {"workers": 4, "min_workers": 2}, "3"),
        (Kind.PYTORCHJOB, {"workers": 4}, "4"),
        (Kind.PYTORCHJOB, {"workers": 4, "min_workers": 2, "max_workers": 8}, "2"),
    ],
)
def test_a_gang_is_on_every_pod_and_counts_those_without_which_nothing_runs(
    kind: Kind, bounds: dict[str, int], least: str
) -> None:
    found = templates(made(kind=kind, container={"gang": True}, **bounds))
    assert len(found) == 2
    for template in found.values():
        assert template["metadata"]["labels"][names.POD_GROUP] == f"{kind.value}-j"
        assert template["metadata"]["labels"][names.POD_GROUP_MIN] == least


def test_selectors_are_for_workers_and_launcher_selectors_for_the_launcher() -> None:
    found = templates(
        made(selectors={"gpu": "a100"}, container={"launcher_selectors": ("pool=cheap",)})
    )
    assert found["worker"]["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert found["launcher"]["spec"]["nodeSelector"] == {"pool": "cheap"}
    both = templates(made(kind=Kind.PYTORCHJOB, selectors={"gpu": "a100"}))
    assert {t["spec"]["nodeSelector"]["gpu"] for t in both.values()} == {"a100"}


def test_files_of_one_folder_share_a_map_and_leave_the_folder_visible() -> None:
    files = ("/host/a.yaml:/etc/app/a.yaml", "/host/b:/etc/app/my file (1)", "/host/c")
    spec = job(container={"config_files": files})
    contents = {"/host/a.yaml": "a: 1\n", "/host/b": "b", "/host/c": "c"}
    first, second, last = objects_of(spec, "", contents)
    assert re.fullmatch("j-[0-9a-f]{15}", first["metadata"]["name"])
    assert first["data"]["a.yaml"] == "a: 1\n"
    assert sorted(first["data"].values()) == ["a: 1\n", "b"]
    assert second["data"] == {"c": "c"}
    pod = templates(last)["worker"]["spec"]
    paths = {m["mountPath"]: m.get("subPath") for m in pod["containers"][0]["volumeMounts"]}
    assert paths["/etc/app/my file (1)"] == "my file (1)"
    assert paths["/host/c"] == "c"
    kubernetes_validate.validate(first, SCHEMA, strict=True)


def test_code_is_fetched_into_the_working_directory_and_described_by_the_job() -> None:
    sync = Sync("git", "https://example.org/a/b.git", "main")
    changes = {"sync": sync, "working_dir": "/w", "container": {"sync_image": "git-sync"}}
    trained, torch = made(**changes), made(kind=Kind.PYTORCHJOB, **changes)
    wanted = {
        "mode": "git",
        "source": "https://example.org/a/b.git",
        "branch": "main",
        "image": "git-sync",
    }
    assert trained["spec"]["sync"] == wanted
    assert json.loads(torch["metadata"]["annotations"][SYNC]) == wanted
    for template in (*templates(trained).values(), *templates(torch).values()):
        mounts = container(template)["volumeMounts"]
        assert {"name": "code-sync", "mountPath": "/w/code"} in mounts
        assert "initContainers" not in template["spec"]


def test_a_login_in_the_address_of_the_code_goes_to_the_secret() -> None:
    spec = job(sync=Sync("git", "https://hush%21@example.org/a.git"))
    secret, last = objects_of(spec, "", {})
    assert secret["metadata"]["name"] == names.git_secret("j")
    assert secret["stringData"] == {"username": "hush!", "password": "hush!"}
    assert last["spec"]["sync"]["source"] == "https://example.org/a.git"
    assert "hush" not in json.dumps(last)


def test_a_login_among_the_variables_goes_to_the_secret_as_well() -> None:
    secret, last = objects_of(job(env={"GIT_SYNC_PASSWORD": "hush", "A": "1"}), "", {})
    assert secret["stringData"] == {"password": "hush"}
    assert "hush" not in json.dumps(last)


def test_a_pytorchjob_counts_its_master_among_its_workers() -> None:
    one = made(kind=Kind.PYTORCHJOB, workers=1)["spec"]
    assert list(one["pytorchReplicaSpecs"]) == ["Master"]
    many = made(kind=Kind.PYTORCHJOB, workers=4)["spec"]
    assert many["pytorchReplicaSpecs"]["Worker"]["replicas"] == 3
    assert "elasticPolicy" not in many
    elastic = made(kind=Kind.PYTORCHJOB, workers=1, min_workers=1, max_workers=3)["spec"]
    assert elastic["pytorchReplicaSpecs"]["Worker"]["replicas"] == 0
    assert elastic["elasticPolicy"] == {"minReplicas": 1, "maxReplicas": 3}


def test_seconds_are_rounded_up_to_whole_ones() -> None:
    found = made(running_timeout=1.2, ttl_after_finished=0.0, max_wait_time=0.5)["spec"]
    assert found["activeDeadlineSeconds"] == 2
    assert found["ttlSecondsAfterFinished"] == 0
    assert found["maxWaitSeconds"] == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("all", {"operator": "Exists"}),
        (
            "gpu=yes:NoSchedule,Equal",
            {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        ),
        ("gpu=yes:NoSchedule", {"key": "gpu", "operator": "Equal", "value": "yes"}),
        ("example.org/gpu", {"key": "example.org/gpu", "operator": "Exists"}),
        ("gpu:NoExecute:Exists:60", {"key": "gpu", "tolerationSeconds": 60}),
    ],
)
def test_tolerations_are_written_in_arenas_ways(text: str, wanted: Object) -> None:
    assert wanted.items() <= toleration(text).items()


def test_a_scale_object_is_what_et_operators_users_write() -> None:
    out = scale_object("scaleout", "j", "j-1", {"count": 2, "timeout": 600.0, "partial": True})
    assert (out["apiVersion"], out["kind"]) == ("kai.alibabacloud.com/v1alpha1", "ScaleOut")
    assert out["spec"] == {
        "toAdd": {"count": 2},
        "selector": {"name": "j"},
        "timeout": 600,
        "partial": True,
    }
    request = {"count": 2, "names": ["j-worker-1", "j-worker-3"], "timeout": 0.2}
    inwards = scale_object("scalein", "j", "j-2", request, namespace="team")
    assert inwards["metadata"]["namespace"] == "team"
    assert inwards["spec"] == {
        "toDelete": {"count": 2, "podNames": ["j-worker-1", "j-worker-3"]},
        "selector": {"name": "j"},
        "timeout": 1,
    }


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tolerations": ("gpu=yes:Sometimes,Equal",)}, "--toleration is invalid"),
        ({"tolerations": ("gpu=yes:NoSchedule,Exists",)}, "--toleration is invalid"),
        ({"tolerations": ("=:,",)}, "--toleration is invalid"),
        ({"tolerations": ("gpu:NoSchedule:Exists:60",)}, "--toleration is invalid"),
        ({"tolerations": ("gpu:NoExecute:Exists:60:1",)}, "--toleration is invalid"),
        ({"annotations": ("no-value",)}, "--annotation is invalid: wanted NAME=VALUE"),
        ({"launcher_annotations": ("a b=c",)}, "--launcher-annotation is invalid"),
        ({"worker_annotations": ("a/b/c=d",)}, "--worker-annotation is invalid"),
        ({"launcher_selectors": ("pool=a b",)}, "--launcher-selector is invalid"),
        ({"image_pull_policy": "Sometimes"}, "--image-pull-policy is invalid"),
        ({"image_pull_secrets": ("No_Secret",)}, "--image-pull-secret is invalid"),
        ({"priority": "Very High"}, "--priority is invalid"),
        ({"data": ("My_Claim:/data",)}, "--data is invalid"),
        ({"data": ("one:/data", "two:/data/")}, "two things are to be mounted at /data"),
        ({"data": ("one:/etc/edl",)}, "two things are to be mounted at /etc/edl"),
        ({"config_files": ("/nowhere:/etc/x",)}, "--config-file /nowhere"),
        ({"config_files": ("/host/a:/x", "/host/b:/x")}, "two things are to be mounted at /x"),
        ({"model_name": "m"}, "model version source must be specified"),
    ],
)
def test_what_a_cluster_would_refuse_later_is_refused_now(changes: Object, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        made(container=changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": {"a": "not a value"}}, "--label is invalid: the value of a"),
        ({"labels": {names.JOB: "x"}}, "is Midflight's own"),
        ({"selectors": {"a b": "c"}}, "--selector is invalid"),
        ({"selectors": {"zone": "a/b"}}, "--selector is invalid"),
    ],
)
def test_labels_that_are_none_are_refused(changes: Object, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        made(**changes)


def test_an_image_is_needed() -> None:
    with pytest.raises(UsageError, match="--image must be set"):
        objects_of(replace(job(), container=Container()), OWNER, {})


def test_a_name_starts_with_a_letter() -> None:
    with pytest.raises(UsageError, match="must start with a letter, got '3d'"):
        objects_of(replace(job(), name="3d"), OWNER, {})


def test_files_that_no_map_can_hold_are_refused() -> None:
    spec = job(container={"config_files": ("/host/big:/etc/big",)})
    with pytest.raises(UsageError, match="a ConfigMap holds 1048576"):
        objects_of(spec, OWNER, {"/host/big": "x" * 1_048_577})
