"""What a TrainingJob or a PyTorchJob means to the controller."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from midflight.controller.spec import Container, Kind, Spec, Sync
from midflight.errors import UsageError
from midflight.kubernetes.manifests.job import objects_of
from midflight.kubernetes.pods import PodDefaults, dependents
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.pod import render
from midflight.kubernetes.pods.security import notes
from midflight.kubernetes.resources.elastic_policy import has_member_for_each_slot
from midflight.kubernetes.resources.job_spec import IMAGE_COMMAND, spec_of
from midflight.kubernetes.verbs import pod_status
from tests.kubernetes.job_objects import (
    HOROVODRUN,
    Json,
    chief_of,
    job_of,
    pod_spec,
    pytorch_job,
    training_job,
    worker_of,
)

WORKER = "spec.etReplicaSpecs.worker"


def refused(obj: Json) -> str:
    with pytest.raises(UsageError) as caught:
        spec_of(obj)
    return str(caught.value)


# --- TrainingJob ----------------------------------------------------------------------------------


def test_a_trainingjob_of_et_operator_is_an_elastic_job() -> None:
    spec = spec_of(training_job())
    assert (spec.kind, spec.key) == (Kind.ETJOB, "team/elastic")
    assert (spec.workers, spec.least, spec.most, spec.gpus) == (3, 1, 9, 1)
    assert (spec.command, spec.shell, spec.run_in) == (HOROVODRUN, "sh", "auto")
    assert (spec.env, spec.working_dir) == ({"LR": "0.1"}, "/examples")
    assert spec.container.image == "example/train:1"


def test_what_is_not_said_is_as_et_operator_and_arena_have_it() -> None:
    obj = training_job()
    for name in ("replicas", "minReplicas", "maxReplicas"):
        del obj["spec"]["etReplicaSpecs"]["worker"][name]
    spec = spec_of(obj)
    assert (spec.workers, spec.least, spec.most) == (1, 1, 1000)
    assert (spec.restart_policy, spec.backoff_limit) == ("Never", 6)
    assert (spec.worker_restart_policy, spec.clean_policy) == ("Always", "Running")
    assert (spec.running_timeout, spec.ttl_after_finished, spec.max_wait_time) == (None, None, None)
    assert not spec.spot


def test_our_own_fields_are_read() -> None:
    obj = training_job(
        activeDeadlineSeconds=3600,
        ttlSecondsAfterFinished=0,
        maxWaitSeconds=60,
        runIn="workers",
        shell="bash",
        restartPolicy="OnFailure",
        backoffLimit=2,
        slotsPerWorker=4,
        sync={"mode": "git", "source": "https://git.example/a/mnist.git", "branch": "dev"},
    )
    spec = spec_of(obj)
    assert (spec.running_timeout, spec.ttl_after_finished, spec.max_wait_time) == (3600.0, 0.0, 60)
    assert (spec.run_in, spec.restart_policy, spec.backoff_limit) == ("workers", "OnFailure", 2)
    assert spec.gpus == 4
    assert spec.sync == Sync("git", "https://git.example/a/mnist.git", "dev")


def test_annotations_of_arena_and_of_ours_count_as_well() -> None:
    obj = training_job()
    obj["metadata"]["annotations"] = {
        "job-supervisor.kube-ai.io/spot-instance": "true",
        "job-supervisor.kube-ai.io/max-wait-time": "90",
        "midflight.dev/run-in": "launcher",
    }
    spec = spec_of(obj)
    assert (spec.spot, spec.max_wait_time, spec.run_in) == (True, 90.0, "launcher")


def test_a_command_that_is_no_shell_text_is_quoted_as_one() -> None:
    words = ["bash", "-ec", "echo a; horovodrun -np 2 python t.py"]
    assert spec_of(training_job(words)).command == "bash -ec 'echo a; horovodrun -np 2 python t.py'"
    spec = spec_of(training_job(["/bin/bash", "-c", "python 'a b.py'"]))
    assert (spec.command, spec.shell) == ("python 'a b.py'", "/bin/bash")


def test_arguments_follow_the_command_and_two_dollars_are_one() -> None:
    obj = training_job(["python", "train.py"])
    pod_spec(obj, "launcher")["containers"][0]["args"] = ["--note", "$$HOME"]
    assert spec_of(obj).command == "python train.py --note '$HOME'"


def test_priority_labels_and_slots_without_gpus_are_read() -> None:
    obj = training_job()
    pod_spec(obj, "launcher")["priorityClassName"] = "high"
    obj["metadata"]["labels"] = {"team": "vision"}
    del pod_spec(obj, "worker")["containers"][0]["resources"]
    spec = spec_of(obj)
    assert (spec.container.priority, spec.labels, spec.gpus) == ("high", {"team": "vision"}, 0)


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        ({"nvidia.com/gpu": "2"}, 2),
        ({"nvidia.com/mig-1g.5gb": "3"}, 3),
        ({"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-3g.20gb": 1}, 2),
        ({"amd.com/gpu": 4}, 4),
        ({"huawei.com/Ascend910": "8"}, 8),
        ({"aliyun.com/gpu-mem": "12"}, 1),
        ({"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "12"}, 2),
        ({"nvidia.com/gpu": "0", "rdma/hca": "1", "cpu": "4"}, 0),
    ],
)
def test_accelerators_of_any_vendor_are_slots_in_the_spec_and_of_the_pod(
    limits: Json, slots: int
) -> None:
    obj = training_job()
    pod_spec(obj, "worker")["containers"][0]["resources"] = {"limits": limits}
    assert spec_of(obj).gpus == slots
    assert pod_status.gpus({"spec": pod_spec(obj, "worker")}) == slots


@pytest.mark.parametrize(
    ("command", "spec", "holds"),
    [
        (["torchrun", "a.py"], {}, True),
        (["torchrun", "a.py"], {"nprocPerNode": "2"}, True),
        (["torchrun", "a.py"], {"nprocPerNode": "4"}, False),
        (["torchrun", "--nproc_per_node=4", "a.py"], {}, False),
    ],
)
def test_torchruns_are_asked_for_sizes_only_where_each_slot_is_a_member(
    command: list[str], spec: Json, holds: bool
) -> None:
    obj = pytorch_job(command, elasticPolicy={"minReplicas": 1}, **spec)
    assert has_member_for_each_slot(spec_of(obj)) == holds


def test_half_a_device_is_refused_with_its_field() -> None:
    obj = training_job()
    pod_spec(obj, "worker")["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "500m"}}
    assert 'containers[0].resources.limits["amd.com/gpu"] is invalid' in refused(obj)


def test_a_password_for_git_is_a_secret_and_no_variable() -> None:
    obj = training_job()
    pod_spec(obj, "launcher")["containers"][0]["env"] += [
        {"name": "GIT_SYNC_PASSWORD", "value": "hush"},
        {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    spec = spec_of(obj)
    assert spec.env == {"LR": "0.1"}
    assert spec.secrets == {"GIT_SYNC_PASSWORD": "hush"}


# --- PyTorchJob -----------------------------------------------------------------------------------


def test_a_pytorchjob_without_an_elastic_policy_is_of_fixed_size() -> None:
    policy = {"cleanPodPolicy": "All", "backoffLimit": 3, "activeDeadlineSeconds": 10}
    spec = spec_of(pytorch_job(runPolicy=policy, nprocPerNode="2"))
    assert (spec.kind, spec.workers, spec.elastic, spec.gpus) == (Kind.PYTORCHJOB, 3, False, 2)
    assert (spec.clean_policy, spec.retry, spec.running_timeout) == ("All", 3, 10.0)
    assert (spec.command, spec.nproc_per_node) == ("python /opt/train.py --epochs 3", "2")


def test_an_elastic_policy_counts_the_master_as_well() -> None:
    spec = spec_of(pytorch_job(elasticPolicy={"minReplicas": 2, "maxReplicas": 5}))
    assert (spec.least, spec.workers, spec.most) == (2, 3, 5)
    assert spec_of(pytorch_job(elasticPolicy={})).most == 1000


def test_an_elastic_job_of_kubeflow_has_workers_only() -> None:
    obj = pytorch_job(["torchrun", "train.py"], elasticPolicy={"minReplicas": 1}, workers=4)
    del obj["spec"]["pytorchReplicaSpecs"]["Master"]
    spec = spec_of(obj)
    assert (spec.workers, spec.command, spec.gpus) == (4, "torchrun train.py", 2)


def test_the_sync_of_a_pytorchjob_is_an_annotation() -> None:
    said = {"mode": "git", "source": "git@git.example:a/b.git", "revision": "v1", "image": "g:1"}
    obj = pytorch_job()
    obj["metadata"]["annotations"] = {"midflight.dev/sync": json.dumps(said)}
    spec = spec_of(obj)
    assert spec.sync == Sync("git", "git@git.example:a/b.git", "", "v1")
    assert spec.container.sync_image == "g:1"


def test_a_pytorchjob_of_fixed_size_may_run_its_images_own_command() -> None:
    obj = pytorch_job()
    for role in ("Master", "Worker"):
        container = pod_spec(obj, role)["containers"][0]
        del container["command"]
        container["args"] = ["--epochs", "1"]
    assert spec_of(obj).command == IMAGE_COMMAND
    obj["spec"]["elasticPolicy"] = {}
    assert "Master.template.spec.containers[0].command is missing" in refused(obj)


def test_restarts_that_a_replica_allows_are_not_endless() -> None:
    assert spec_of(pytorch_job()).retry == 6  # its workers say OnFailure, and nobody how often
    obj = pytorch_job()
    obj["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    assert spec_of(obj).retry == 0


# --- there and back -------------------------------------------------------------------------------

SUBMITTED = Spec(
    kind=Kind.ETJOB,
    name="there",
    command="horovodrun -np ${workers} python 'a b.py' --pid $$",
    namespace="team",
    workers=2,
    min_workers=1,
    max_workers=4,
    gpus=2,
    working_dir="/data",
    env={"A": "$(B) c"},
    shell="bash",
    run_in="launcher",
    backoff_limit=1,
    restart_policy="OnFailure",
    worker_restart_policy="ExitCode",
    clean_policy="All",
    running_timeout=60.0,
    ttl_after_finished=5.0,
    max_wait_time=30.0,
    spot=True,
    sync=Sync("git", "https://git.example/a/b.git", "dev", "v1"),
    container=Container(image="i:1", priority="high", sync_image="g:1"),
)
READ = (
    *("kind", "name", "command", "namespace", "workers", "min_workers", "max_workers", "gpus"),
    *("working_dir", "shell", "retry", "worker_restart_policy", "clean_policy", "sync"),
    *("running_timeout", "ttl_after_finished", "nproc_per_node"),
)
OF_ETJOBS = ("run_in", "restart_policy", "backoff_limit", "max_wait_time", "spot")


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (SUBMITTED, (*READ, *OF_ETJOBS)),
        (
            replace(
                SUBMITTED,
                kind=Kind.PYTORCHJOB,
                retry=3,
                nproc_per_node="2",
                worker_restart_policy="OnFailure",
            ),
            READ,
        ),
    ],
)
def test_what_was_submitted_is_what_is_read(spec: Spec, names: tuple[str, ...]) -> None:
    *_, obj = objects_of(spec, "me", {})
    found = spec_of(obj)
    assert {name: getattr(found, name) for name in names} == {
        name: getattr(spec, name) for name in names
    }
    assert found.env["A"] == spec.env["A"]
    assert found.container.priority == "high"
    assert found.container.sync_image == "g:1"


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minReplicas": 10}, f"{WORKER}.maxReplicas 9 is less than {WORKER}.minReplicas 10"),
        ({"replicas": 12}, f"{WORKER}.replicas 12 is not between {WORKER}.minReplicas 1 and"),
        ({"replicas": 0, "minReplicas": 0}, f"{WORKER}.replicas is invalid: wanted at least 1"),
        ({"replicas": "3"}, f"{WORKER}.replicas is invalid: wanted a whole number, got '3'"),
        ({"replicas": True}, f"{WORKER}.replicas is invalid: wanted a whole number, got True"),
        ({"restartPolicy": "Sometimes"}, f"{WORKER}.restartPolicy is invalid: wanted Never"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_with_their_field(change: Json, message: str) -> None:
    obj = training_job()
    obj["spec"]["etReplicaSpecs"]["worker"].update(change)
    assert message in refused(obj)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cleanPodPolicy": "Some"}, "unsupported spec.cleanPodPolicy Some"),
        ({"restartPolicy": "Always"}, "spec.restartPolicy is invalid"),
        ({"backoffLimit": -1}, "spec.backoffLimit is invalid"),
        ({"activeDeadlineSeconds": -5}, "spec.activeDeadlineSeconds is invalid"),
        ({"runIn": "here"}, "spec.runIn is invalid"),
        ({"sync": {"mode": "svn", "source": "x"}}, "Unknown sync mode: svn"),
        ({"sync": {"mode": "git"}}, "spec.sync.source should be set when"),
        ({"sync": {"mode": "git", "source": "https://x/.."}}, "does not end with a name"),
        ({"sync": {"mode": "git", "source": "--upload-pack=x"}}, "starts with '-'"),
        ({"sync": {"mode": "git", "source": "a/b", "revision": "-x"}}, "starts with '-'"),
    ],
)
def test_policies_and_sources_that_make_no_sense_are_refused(spec: Json, message: str) -> None:
    assert message in refused(training_job(**spec))


@pytest.mark.parametrize("name", ["", "a" * 50, "Up", "9lives", "a.b", "a-", None, 3])
def test_a_name_that_no_service_could_have_is_refused(name: Any) -> None:
    obj = training_job()
    obj["metadata"]["name"] = name
    assert "metadata.name is invalid" in refused(obj)


def launcher_change(obj: Json, change: Json) -> Json:
    pod_spec(obj, "launcher").update(change)
    return obj


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"containers": []}, "launcher.template.spec.containers is empty"),
        ({"containers": [{"name": "a", "image": "i"}]}, "containers[0].command is missing"),
        ({"containers": [{"name": "a"}]}, "containers[0].image is missing"),
        ({"containers": "a"}, "launcher.template.spec.containers is invalid: wanted a list"),
        ({"volumes": [{"name": "midflight-token"}]}, "volumes[0].name is invalid"),
        ({"terminationGracePeriodSeconds": -3}, "terminationGracePeriodSeconds is invalid"),
        ({"securityContext": {"runAsUser": "root"}}, "securityContext.runAsUser is invalid"),
    ],
)
def test_templates_that_cannot_be_used_are_refused(change: Json, message: str) -> None:
    assert message in refused(launcher_change(training_job(), change))


def test_two_containers_of_one_name_and_our_own_places_are_refused() -> None:
    obj = training_job()
    container = pod_spec(obj, "worker")["containers"][0]
    pod_spec(obj, "worker")["containers"].append(copy.deepcopy(container))
    assert "containers[1].name is invalid: 'et' is there twice" in refused(obj)
    obj = training_job()
    mounts = [{"name": "x", "mountPath": "/etc/edl/"}]
    pod_spec(obj, "worker")["containers"][0]["volumeMounts"] = mounts
    assert "/etc/edl is Midflight's own" in refused(obj)


@pytest.mark.parametrize("limit", ["1.5", "many", -1, "1e30", [1]])
def test_gpus_are_whole(limit: Any) -> None:
    obj = training_job()
    pod_spec(obj, "worker")["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = limit
    assert 'resources.limits["nvidia.com/gpu"] is invalid' in refused(obj)


# --- whatever comes -------------------------------------------------------------------------------

FULL = training_job(
    sync={"mode": "git", "source": "https://git.example/a/b.git"}, slotsPerWorker=2, runIn="auto"
)
FULL["metadata"]["annotations"] = {"midflight.dev/security": "restricted"}
for role in ("launcher", "worker"):
    pod_spec(FULL, role).update(
        {
            "volumes": [{"name": "data", "emptyDir": {}}],
            "securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "first", "image": "i", "command": ["true"]}],
            "hostNetwork": False,
            "serviceAccountName": "",
        }
    )
    pod_spec(FULL, role)["containers"][0].update(
        {
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "ports": [{"name": "web", "containerPort": 80}],
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}, "privileged": False},
            "env": [{"name": "HOME", "value": "/data"}, {"name": "B", "valueFrom": {}}],
        }
    )
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2000)
    | st.sampled_from(["", "a", "ALL", "/x", "-"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "value", "command", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [here, *(place for key, inner in items for place in places(inner, (*here, key)))]


def put(obj: Any, place: tuple[Any, ...], value: Any) -> None:
    holder = obj
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value


@pytest.mark.parametrize("base", [FULL, pytorch_job(elasticPolicy={}), pytorch_job()])
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_object_is_either_a_job_whose_pods_can_be_made_or_refused(
    base: Json, data: st.DataObject
) -> None:
    obj = copy.deepcopy(base)
    for _ in range(data.draw(st.integers(1, 3))):
        put(obj, data.draw(st.sampled_from(places(obj)[1:])), data.draw(JSON))
    try:
        job = job_of(obj)
    except UsageError as error:
        assert str(error)
        return
    before = copy.deepcopy(obj)
    for instance in (chief_of(job), worker_of(job)):
        json.dumps(render(obj, job, instance, PodDefaults("midflight:1")))
    json.dumps(dependents.objects(obj, job, "token", PodDefaults()))
    if job.spec.sync is not None:
        json.dumps(code_pod(obj, job, PodDefaults()))
    assert all(notes(obj)) or notes(obj) == []
    assert obj == before
