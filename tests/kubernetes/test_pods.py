"""From a job's object to the pods of its instances."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.code import code_pod
from midflight.python310 import RUN_MODULE
from tests.kubernetes.job_objects import (
    Json,
    job_of,
    pod_spec,
    pytorch_job,
    training_job,
)
from tests.kubernetes.pod_standard import faults
from tests.kubernetes.rendered_pods import (
    COMMIT,
    ELASTIC,
    PLAIN,
    SYNC,
    TORCHRUN,
    chief,
    env,
    main,
    mounts,
    security,
    worker,
)

GOLDEN = Path(__file__).parent / "golden_pods"
ANEW = "MIDFLIGHT_WRITE_GOLDEN"  # set, the files are written instead of compared


# --- golden files ---------------------------------------------------------------------------------


class Readable(yaml.SafeDumper):
    """Writes scripts as scripts."""


def write_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Readable.add_representer(str, write_text)


def with_runtime() -> Json:
    return chief(training_job(PLAIN), PodDefaults("midflight:1"))


def with_code() -> Json:
    obj = training_job(sync=SYNC)
    pod_spec(obj, "launcher")["containers"][0]["workingDir"] = "/root"
    return chief(obj, commit=COMMIT)


def of_the_code() -> Json:
    obj = training_job(sync=SYNC)
    pod_spec(obj, "launcher")["tolerations"] = [{"operator": "Exists"}]
    return code_pod(obj, job_of(obj), PodDefaults())


PODS: dict[str, Callable[[], Json]] = {
    "launcher": lambda: chief(training_job()),
    "launcher_of_a_plain_command_with_the_runtime": with_runtime,
    "launcher_with_code": with_code,
    "worker": lambda: worker(training_job(), 2, attempt=3),
    "worker_with_the_runtime": lambda: worker(training_job(), site=PodDefaults("midflight:1")),
    "elastic_master": lambda: chief(pytorch_job(elasticPolicy=ELASTIC)),
    "elastic_worker": lambda: worker(pytorch_job(elasticPolicy=ELASTIC)),
    "torchrun_master": lambda: chief(pytorch_job(TORCHRUN, elasticPolicy=ELASTIC)),
    "fixed_master": lambda: chief(pytorch_job(nprocPerNode="2")),
    "fixed_worker": lambda: worker(pytorch_job(nprocPerNode="2"), 1),
    "code": of_the_code,
}


@pytest.mark.parametrize("name", PODS)
def test_pods_are_as_their_golden_files_have_them(name: str) -> None:
    path, pod = GOLDEN / f"{name}.yaml", PODS[name]()
    if os.environ.get(ANEW):
        path.write_text(yaml.dump(pod, Dumper=Readable, sort_keys=False), encoding="utf-8")
    assert pod == yaml.safe_load(path.read_text(encoding="utf-8")), f"look at it, then set {ANEW}=1"


@pytest.mark.parametrize("name", PODS)
def test_pods_are_valid_for_a_current_kubernetes(name: str) -> None:
    kubernetes_validate.validate(PODS[name](), kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", PODS)
def test_pods_are_let_into_a_namespace_of_the_restricted_profile(name: str) -> None:
    pod = PODS[name]()
    assert faults(pod) == []
    assert security(pod)["readOnlyRootFilesystem"] is True


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [TORCHRUN, ["torchrun", "train.py"], ["sh", "-c", "torchrun a"]]
)
def test_every_pod_of_an_elastic_job_runs_torchrun_and_all_of_them_meet(command: list[str]) -> None:
    """The form of Kubeflow's elastic examples: the world of each was one."""
    obj = pytorch_job(command, elasticPolicy={**ELASTIC, "maxRestarts": 5})
    first, second = chief(obj), worker(obj)
    for pod in (first, second):
        script, name, *words = main(pod)["command"][2:]
        assert (name, words[-1]) == (
            "sh",
            f"exec {command[-1]}" if "-c" in command else command[-1],
        )
        assert "midflight.shims" in script
        assert {
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "fixed-master-0:23456",
            "PET_RDZV_ID": "fixed",
            "PET_NNODES": "1:4",
            "PET_NPROC_PER_NODE": "2",
            "PET_MAX_RESTARTS": "5",
            "MIDFLIGHT_TOKEN_FILE": "/etc/midflight/token",
        }.items() <= env(pod).items()
    assert first["spec"]["hostname"] == "fixed-master-0"  # by which torch knows who is the host


@pytest.mark.parametrize(
    "command",
    [
        ["accelerate", "launch", "train.py"],
        ["python", "-m", "accelerate.commands.launch", "train.py"],
        ["deepspeed", "--no_ssh", "train.py"],
        ["mpirun", "python", "train.py"],
    ],
)
def test_every_pod_runs_a_launcher_that_counts_its_nodes_when_it_starts(command: list[str]) -> None:
    """The master ran it alone, a world of one, and workers did nothing."""
    obj = pytorch_job(command, elasticPolicy={**ELASTIC, "maxRestarts": 5})
    for rank, pod in enumerate((chief(obj), worker(obj))):
        assert main(pod)["command"] == command
        assert {
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "MASTER_ADDR": "fixed-master-0",
            "MASTER_PORT": "23456",
            "PET_NODE_RANK": str(rank),
            "PET_NNODES": "3",
            "PET_RDZV_ENDPOINT": "fixed-master-0:23456",
            "PET_RDZV_ID": "fixed",
            "PET_MAX_RESTARTS": "5",
        }.items() <= env(pod).items()
        names = [each["name"] for each in main(pod)["env"]]
        assert len(names) == len({*names})
    assert "PET_RDZV_ID" not in env(chief(pytorch_job(command)))


def test_pods_of_workers_alone_have_the_host_names_that_kubeflow_gives_them() -> None:
    """Its first worker is the host of the rendezvous, and here that is the chief."""
    obj = pytorch_job(TORCHRUN, elasticPolicy=ELASTIC)
    del obj["spec"]["pytorchReplicaSpecs"]["Master"]
    first, second = chief(obj), worker(obj)
    assert [each["spec"]["hostname"] for each in (first, second)] == [
        "fixed-worker-0",
        "fixed-worker-1",
    ]
    assert env(second)["PET_RDZV_ENDPOINT"] == "fixed-worker-0:23456"


def test_a_torchrun_that_a_script_hides_meets_the_others_too() -> None:
    """Each member starts one, which is a node with one process."""
    obj = pytorch_job(["bash", "train.sh"], elasticPolicy=ELASTIC)
    for pod in (chief(obj), worker(obj)):
        assert {
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": "fixed-master-0:23456",
            "PET_NNODES": "2:8",
            "PET_NPROC_PER_NODE": "1",
        }.items() <= env(pod).items()
    names = [each["name"] for each in main(worker(obj))["env"]]
    assert len(names) == len({*names})
    assert "PET_NNODES" not in env(worker(training_job(["bash", "train.sh"])))


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (pytorch_job(), {"RANK": "1", "MASTER_ADDR": "fixed-master-0", "PET_NNODES": "3"}),
        (pytorch_job(TORCHRUN, elasticPolicy=ELASTIC), {"PET_RDZV_ID": "fixed"}),
    ],
)
def test_all_containers_of_a_pytorchjob_are_told_what_kubeflow_tells_them(
    obj: Json, wanted: dict[str, str]
) -> None:
    obj = copy.deepcopy(obj)
    beside = {"name": "beside", "image": "x", "env": [{"name": "A", "value": "1"}]}
    pod_spec(obj, "Worker")["containers"].append(beside)
    found = {
        each["name"]: each.get("value") for each in worker(obj)["spec"]["containers"][1]["env"]
    }
    assert found["A"] == "1"
    assert wanted.items() <= found.items()


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "100m", "memory": "128Mi"}),
        ({"cpu": "50m", "memory": "64Mi"}, {"cpu": "50m", "memory": "64Mi"}),
        (
            {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "9Gi"},
            {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "9Gi"},
        ),
    ],
)
def test_a_quota_on_limits_finds_them_in_our_init_containers(limits: Json, requests: Json) -> None:
    """A pod with a container that has none was refused, and the job waited for ever."""
    obj = training_job(PLAIN, sync=SYNC)
    for role in ("launcher", "worker"):
        pod_spec(obj, role)["containers"][0]["resources"] = {"limits": {**limits, "x.dev/y": "1"}}
    made = [chief(obj, PodDefaults("midflight:1")), worker(obj, site=PodDefaults("midflight:1"))]
    made.append(code_pod(obj, job_of(obj), PodDefaults()))
    for pod in made:
        for each in pod["spec"].get("initContainers", pod["spec"]["containers"]):
            assert each["resources"] == {"limits": limits, "requests": requests}


def test_what_the_elastic_policy_says_of_the_rendezvous_is_told_to_torchrun() -> None:
    said = {"rdzvBackend": "etcd-v2", "rdzvHost": "etcd", "rdzvPort": 2379, "rdzvId": "mine"}
    conf = [{"key": "timeout", "value": "60"}, {"key": "is_host", "value": "0"}]
    obj = pytorch_job(TORCHRUN, elasticPolicy={**ELASTIC, **said, "rdzvConf": conf})
    assert {
        "PET_RDZV_BACKEND": "etcd-v2",
        "PET_RDZV_ENDPOINT": "etcd:2379",
        "PET_RDZV_ID": "mine",
        "PET_RDZV_CONF": "timeout=60,is_host=0",
    }.items() <= env(worker(obj)).items()


def test_where_the_annotation_says_so_torchrun_runs_in_the_master_alone() -> None:
    obj = pytorch_job(TORCHRUN, elasticPolicy=ELASTIC)
    obj["metadata"]["annotations"] = {"midflight.dev/run-in": "launcher"}
    assert "midflight.agent" in main(worker(obj))["command"]
    assert "PET_NNODES" not in env(chief(obj))


def test_a_worker_runs_an_agent_whatever_its_template_says() -> None:
    obj = training_job()
    container = pod_spec(obj, "worker")["containers"][0]
    container.update({"command": ["sh", "-c", "/usr/sbin/sshd && sleep 365d"], "args": ["-x"]})
    found = main(worker(obj))
    assert found["command"][:4] == ["python3", "-c", RUN_MODULE, "midflight.agent"]
    assert "args" not in found


def test_an_agent_has_its_slots_and_a_little_less_grace_than_its_pod() -> None:
    words = main(worker(training_job(slotsPerWorker=4)))["command"]
    assert words[words.index("--slots") + 1] == "4"
    assert words[words.index("--grace") + 1] == "58"
    assert words[words.index("--address") + 1] == "$(POD_IP)"


def test_a_command_with_a_launcher_of_its_own_runs_as_it_is() -> None:
    words = main(chief(training_job(["bash", "-c", "cd x && horovodrun -np 2 python t.py"])))[
        "command"
    ]
    assert words[:4] == ["python3", "-c", RUN_MODULE, "midflight.shims"]
    assert words[4:] == ["bash", "-c", "cd x && horovodrun -np 2 python t.py"]


def test_a_plain_command_becomes_a_run_over_all_workers() -> None:
    obj = training_job(["sh", "-c", "python train.py"], slotsPerWorker=2)
    words = main(chief(obj))["command"]
    assert words[3:] == [
        *("midflight.run", "-np", "6", "--min-np", "2", "--max-np", "18", "--"),
        *("sh", "-c", "exec python train.py"),
    ]


def test_who_knows_better_says_where_the_command_runs() -> None:
    words = main(chief(training_job(PLAIN, runIn="launcher")))["command"]
    assert words == ["python3", "-c", RUN_MODULE, "midflight.shims", *PLAIN]


def test_references_to_variables_in_words_are_left_for_kubernetes() -> None:
    words = main(chief(training_job(["python", "t.py", "--host", "$(HOST_IP)"])))["command"]
    assert words[-4:] == ["python", "t.py", "--host", "$(HOST_IP)"]


def test_a_job_of_fixed_size_runs_the_users_command_and_nothing_of_ours() -> None:
    pod = worker(pytorch_job(), site=PodDefaults("midflight:1"))
    assert main(pod)["command"] == ["python", "/opt/train.py", "--epochs", "3"]
    assert "initContainers" not in pod["spec"]
    assert "/etc/midflight" not in mounts(pod)


def test_the_images_own_command_stays_its_own() -> None:
    obj = pytorch_job()
    for role in ("Master", "Worker"):
        container = pod_spec(obj, role)["containers"][0]
        del container["command"]
        container["args"] = ["--epochs", "1"]
    found = main(worker(obj))
    assert "command" not in found
    assert found["args"] == ["--epochs", "1"]


def test_the_runtime_is_put_in_front_of_the_images_own_python_path() -> None:
    pod = worker(training_job(), site=PodDefaults("midflight:1"))
    words = main(pod)["command"]
    assert words[:2] == ["sh", "-c"]
    assert 'PYTHONPATH="/opt/midflight${PYTHONPATH:+:$PYTHONPATH}"' in words[2]
    assert words[3:5] == ["python3", "-c"]
    [provider] = pod["spec"]["initContainers"]
    assert provider["command"] == ["midflight-provide", "/opt/midflight"]


# --- environment ----------------------------------------------------------------------------------


def test_a_launcher_is_told_where_everything_is() -> None:
    found = env(chief(training_job()))
    assert found["MIDFLIGHT_JOB"] == "elastic"
    assert found["MIDFLIGHT_INSTANCE"] == "elastic-launcher"
    assert found["MIDFLIGHT_LISTEN"] == "$(POD_IP):47100"
    assert found["MIDFLIGHT_STORE"] == "kubernetes://team/elastic-state"
    assert found["MIDFLIGHT_TLS"] == "1"
    assert found["MIDFLIGHT_HOSTFILE"] == "/etc/edl/hostfile"
    assert (found["workers"], found["gpus"], found["maxWorkers"]) == ("3", "1", "9")


def test_whoever_writes_a_launcher_may_do_without_encryption() -> None:
    obj = training_job()
    pod_spec(obj, "launcher")["containers"][0]["env"] = [{"name": "MIDFLIGHT_TLS", "value": "0"}]
    assert env(chief(obj))["MIDFLIGHT_TLS"] == "0"


def test_the_users_sizes_stay_and_midflights_own_variables_win() -> None:
    obj = training_job()
    pod_spec(obj, "launcher")["containers"][0]["env"] = [
        {"name": "workers", "value": "2"},
        {"name": "MIDFLIGHT_JOB", "value": "another"},
        {"name": "GIT_SYNC_PASSWORD", "value": "hush"},
        {"name": "ADDRESS", "value": "$(POD_IP):80"},
    ]
    listed = [each["name"] for each in main(chief(obj))["env"]]
    found = env(chief(obj))
    assert (found["workers"], found["MIDFLIGHT_JOB"]) == ("2", "elastic")
    assert "GIT_SYNC_PASSWORD" not in found
    assert len(listed) == len(set(listed))
    assert listed.index("POD_IP") < listed.index("ADDRESS")


def test_each_pod_of_fixed_size_knows_its_rank_and_its_master() -> None:
    obj = pytorch_job(nprocPerNode="2")
    ports = [{"name": "pytorchjob-port", "containerPort": 29500}]
    pod_spec(obj, "Master")["containers"][0]["ports"] = ports
    first, last = env(chief(obj)), env(worker(obj, 1))
    assert (first["RANK"], last["RANK"], last["PET_NODE_RANK"]) == ("0", "2", "2")
    assert first["MASTER_ADDR"] == last["MASTER_ADDR"] == "fixed-master-0"
    assert first["MASTER_PORT"] == last["PET_MASTER_PORT"] == "29500"
    assert (last["WORLD_SIZE"], last["PET_NNODES"], last["PET_NPROC_PER_NODE"]) == ("6", "3", "2")


def test_an_elastic_master_is_a_host_of_its_own_run() -> None:
    pod = chief(pytorch_job(elasticPolicy=ELASTIC))
    assert env(pod)["MIDFLIGHT_HOST"] == "fixed-master-0"
    words = main(worker(pytorch_job(elasticPolicy=ELASTIC)))["command"]
    assert words[words.index("--join") + 1] == "fixed-launcher.team.svc:47100"


# --- volumes --------------------------------------------------------------------------------------


def test_nothing_is_mounted_where_the_user_has_something() -> None:
    obj = training_job()
    own = [{"name": "mine", "mountPath": path} for path in ("/dev/shm", "/tmp/", "/home/me")]
    container = pod_spec(obj, "worker")["containers"][0]
    container["volumeMounts"] = own
    container["env"].append({"name": "HOME", "value": "/home/me"})
    found = main(worker(obj))["volumeMounts"]
    assert [each["mountPath"] for each in found[:3]] == ["/dev/shm", "/tmp/", "/home/me"]
    assert {each["mountPath"] for each in found[3:]} == {"/etc/midflight", "/var/run/midflight"}
    assert env(worker(obj))["HOME"] == "/home/me"


def test_a_home_that_could_not_be_written_to_is_elsewhere() -> None:
    obj = training_job()
    assert env(worker(obj))["HOME"] == "/tmp"
    container = pod_spec(obj, "worker")["containers"][0]
    container["env"].append({"name": "HOME", "value": "/root"})
    assert env(worker(obj))["HOME"] == "/tmp"
    container["workingDir"] = "/root"  # nobody but root gets into the image's
    assert mounts(worker(obj))["/root"] == "midflight-home"
    assert env(worker(obj))["HOME"] == "/root"


def test_somebody_whom_no_image_knows_has_a_name() -> None:
    assert env(worker(training_job()))["USER"] == "midflight"
    obj = training_job()
    pod_spec(obj, "worker")["securityContext"] = {"runAsUser": 1000}
    assert "USER" not in env(worker(obj))


def test_a_token_is_for_the_pods_group_only_where_it_has_one() -> None:
    obj = training_job()

    def mode() -> int:
        volumes = worker(obj)["spec"]["volumes"]
        [found] = [each["secret"]["defaultMode"] for each in volumes if "secret" in each]
        return int(found)

    assert mode() == 0o440
    pod_spec(obj, "worker")["securityContext"] = {"runAsUser": 1000}
    assert mode() == 0o444


def test_code_is_fetched_into_the_volume_that_the_template_has_for_it() -> None:
    obj = training_job(sync=SYNC)
    launcher = pod_spec(obj, "launcher")
    launcher["volumes"] = [{"name": "code-sync", "emptyDir": {}}]
    launcher["containers"][0]["volumeMounts"] = [
        {"name": "code-sync", "mountPath": "/examples/code"}
    ]
    pod = chief(obj, commit=COMMIT)
    [fetching] = pod["spec"]["initContainers"]
    assert {"name": "code-sync", "mountPath": "/code"} in fetching["volumeMounts"]
    assert mounts(pod)["/examples/code"] == "code-sync"
    assert mounts(chief(training_job(sync=SYNC)))["/examples/code"] == "midflight-code"


# --- the rest -------------------------------------------------------------------------------------


def test_a_template_is_kept_as_far_as_it_can_be_and_never_changed() -> None:
    obj = training_job()
    extra: dict[str, Any] = {
        "nodeSelector": {"gpu": "a100"},
        "tolerations": [{"operator": "Exists"}],
        "schedulerName": "other",
        "imagePullSecrets": [{"name": "pull"}],
        "restartPolicy": "Always",
    }
    pod_spec(obj, "worker").update(extra)
    pod_spec(obj, "worker")["containers"].append({"name": "helper", "image": "h"})
    before = copy.deepcopy(obj)
    spec = worker(obj)["spec"]
    assert {key: spec[key] for key in extra} == extra | {"restartPolicy": "Never"}
    assert spec["containers"][1]["name"] == "helper"
    assert obj == before


def test_pods_are_found_by_our_labels_and_by_those_of_the_operators_before() -> None:
    labels = worker(training_job(), 2, attempt=3)["metadata"]["labels"]
    assert labels["midflight.dev/job"] == labels["training-job-name"] == "elastic"
    assert (labels["midflight.dev/index"], labels["midflight.dev/attempt"]) == ("2", "3")
    assert (labels["midflight.dev/kind"], labels["midflight.dev/role"]) == ("etjob", "worker")
    assert labels["app"] == "etjob"
    labels = chief(pytorch_job())["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == "fixed"
    assert labels["training.kubeflow.org/job-role"] == labels["midflight.dev/role"] == "master"


def test_a_launcher_asks_for_little_unless_it_has_said_what_it_needs() -> None:
    obj = training_job()
    assert main(chief(obj))["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}}
    pod_spec(obj, "launcher")["containers"][0]["resources"] = {"limits": {"cpu": 1}}
    assert main(chief(obj))["resources"] == {"limits": {"cpu": 1}}
