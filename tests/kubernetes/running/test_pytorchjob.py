"""PyTorchJobs without Kubeflow's operator: of fixed size and elastic, and whose they are.

None of them needs torch: what the operator gives a pod (a rank, a master's address, code) is seen
from a few lines of Python.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from midflight.kubernetes import names
from midflight.kubernetes.names import SYNC
from midflight.kubernetes.resources import kept_logs
from tests.kubernetes.plane.api import MERGE, Json
from tests.kubernetes.plane.cluster import phase
from tests.kubernetes.running.guide_git import Repository, served
from tests.kubernetes.running.jobs import SECONDS, SLEEP, Jobs, condition, quick
from tests.kubernetes.running.observations import CRD, attempt, uids, wait_said
from tests.kubernetes.running.operators import Operators

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
KIND = "PyTorchJob"
DEFINITION = "pytorchjobs.kubeflow.org"
RING = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(place)
    heard = sorted(server.accept()[0].recv(9).decode() for _ in range(size - 1))
    print("rank 0 of", size, "at", place, "heard", *heard)
    sys.exit()
for _ in range(600):
    try:
        socket.create_connection(place).send(str(rank).encode())
        print("rank", rank, "of", size)
        sys.exit()
    except OSError:
        time.sleep(0.1)
sys.exit("nobody is at " + str(place))
"""


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def manifest(jobs: Jobs, name: str, command: list[str], workers: int = 1, **more: Any) -> Json:
    """A master and `workers`; `policy` is the run policy, `annotations` are the job's."""
    container = {"name": "pytorch", "image": "train", "command": command}
    template = {"spec": {"containers": [container]}}
    meta = {"name": name, "namespace": jobs.namespace, "annotations": more.pop("annotations", {})}
    replicas = {"template": template, "restartPolicy": "OnFailure"}
    spec = {
        "pytorchReplicaSpecs": {
            "Master": {**replicas, "replicas": 1},
            "Worker": {**replicas, "replicas": workers},
        },
        "runPolicy": more.pop("policy", {}),
        **more,
    }
    found = {"apiVersion": "kubeflow.org/v1", "kind": KIND, "metadata": meta, "spec": spec}
    return quick(json.loads(json.dumps(found)))


def elastic(jobs: Jobs, name: str, **annotations: str) -> Json:
    """One to three of them, with an idle command."""
    said = {names.RUN_IN: "launcher", **annotations}
    bounds = {"minReplicas": 1, "maxReplicas": 3}
    return manifest(jobs, name, shell(SLEEP), elasticPolicy=bounds, annotations=said)


def wait_phase(jobs: Jobs, name: str, *phases: str) -> Json:
    return jobs.cluster.wait_for(KIND, jobs.namespace, name, phase(*phases), SECONDS)


def wait_pods(jobs: Jobs, *wanted: str) -> dict[str, Json]:
    """Exactly these, and all of them run."""

    def so(pods: Any) -> bool:
        running = [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]
        return sorted(running) == sorted(wanted) and len(pods) == len(wanted)

    found = jobs.cluster.wait_for_all("Pod", jobs.namespace, so, SECONDS)
    return {pod["metadata"]["name"]: pod for pod in found}


def set_workers(jobs: Jobs, name: str, count: int) -> None:
    """As `kubectl scale` does it."""
    path = f"{jobs.cluster.path(KIND, jobs.namespace, name)}/scale"
    jobs.cluster.api.call("PATCH", path, {"spec": {"replicas": count}}, MERGE)


# --- of fixed size --------------------------------------------------------------------------------


def test_every_pod_knows_its_rank_and_finds_the_master_by_its_name(jobs: Jobs):
    jobs.create(manifest(jobs, "ring", ["python3", "-c", RING], workers=2))
    ended = wait_phase(jobs, "ring", "Succeeded")
    assert condition(ended, "Succeeded")["status"] == "True"
    log = jobs.cluster.log(jobs.namespace, "ring-master-0")
    assert log == "rank 0 of 3 at ('ring-master-0', 23456) heard 1 2\n"
    assert jobs.cluster.log(jobs.namespace, "ring-worker-1") == "rank 2 of 3\n"


def test_what_fails_is_started_again_as_often_as_the_backoff_limit_says(jobs: Jobs):
    jobs.create(manifest(jobs, "bad", shell("exit 3"), workers=0, policy={"backoffLimit": 1}))
    ended = wait_phase(jobs, "bad", "Failed")
    assert ended["status"]["restartCount"] == 1
    assert condition(ended, "Failed")["message"] == "bad-master-0 ended with code 3"
    assert attempt(jobs.pod("bad-master-0")) == 2


def test_the_end_of_the_log_of_a_pod_that_failed_is_there_when_it_was_started_again(jobs: Jobs):
    """It went with its pod, half a second after the crash."""
    script = 'seq 1 2000; echo "of $HOSTNAME" >&2; sleep 0.2; exit 3'
    jobs.create(manifest(jobs, "crash", shell(script), policy={"backoffLimit": 1}))
    wait_phase(jobs, "crash", "Failed")
    kept = jobs.cluster.wait_for("ConfigMap", jobs.namespace, "crash-logs", bool)
    log = kept_logs.by_instance(kept["data"])["crash-master-0"]
    assert log.startswith("1702\n") and log.endswith("2000\nof crash-master-0\n")
    [owner] = kept["metadata"]["ownerReferences"]
    assert owner["name"] == "crash"
    jobs.cluster.delete(KIND, jobs.namespace, "crash")
    jobs.cluster.wait_gone("ConfigMap", jobs.namespace, "crash-logs")


def test_a_job_of_fixed_size_that_loses_a_pod_starts_anew_as_a_whole(jobs: Jobs):
    jobs.create(manifest(jobs, "fixed", shell(SLEEP)))
    names_of = ("fixed-master-0", "fixed-worker-0")
    wait_pods(jobs, *names_of)
    wait_phase(jobs, "fixed", "Running")
    before = uids(jobs)
    jobs.delete_pod("fixed-worker-0")
    wait_said(jobs, "Restarting", "fixed-worker-0 was lost with its pod")
    wait_phase(jobs, "fixed", "Running")
    after = wait_pods(jobs, *names_of)
    assert not {pod["metadata"]["uid"] for pod in after.values()} & set(before.values())
    assert {attempt(pod) for pod in after.values()} == {2}
    set_workers(jobs, "fixed", 2)
    wait_said(jobs, "ScaleRefused", "has a fixed size of 2 workers")
    assert len(jobs.pods()) == 2


def test_a_job_has_so_long_to_run_and_is_gone_some_time_after_its_end(jobs: Jobs):
    policy = {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 1}
    jobs.create(manifest(jobs, "long", shell(SLEEP), policy=policy))
    ended = wait_phase(jobs, "long", "Failed")
    assert "ran longer than 1s" in condition(ended, "Failed")["message"]
    jobs.cluster.wait_gone(KIND, jobs.namespace, "long")
    jobs.cluster.wait_for_all("Pod", jobs.namespace, lambda left: not left)


# --- elastic --------------------------------------------------------------------------------------


def test_a_job_that_names_another_manager_is_left_alone(jobs: Jobs):
    other = "kueue.x-k8s.io/multikueue"
    jobs.create(manifest(jobs, "away", shell(SLEEP), workers=0, policy={"managedBy": other}))
    wait_said(jobs, "NotOurs", other)
    jobs.create(manifest(jobs, "ours", shell("true"), 0, policy={"managedBy": names.KUBEFLOW}))
    jobs.cluster.wait_for(KIND, jobs.namespace, "ours", phase("Succeeded"))
    left = jobs.cluster.get(KIND, jobs.namespace, "away")
    assert left is not None and "status" not in left and "finalizers" not in left["metadata"]
    assert not [name for name in jobs.pods() if name.startswith("away")]


def test_an_elastic_job_is_scaled_within_its_bounds(jobs: Jobs):
    jobs.create(elastic(jobs, "el"))
    wait_pods(jobs, "el-master-0", "el-worker-0")
    wait_phase(jobs, "el", "Running")
    before = uids(jobs)
    set_workers(jobs, "el", 2)
    wait_pods(jobs, "el-master-0", "el-worker-0", "el-worker-1")
    set_workers(jobs, "el", 0)
    wait_pods(jobs, "el-master-0")
    wait_phase(jobs, "el", "Running")
    set_workers(jobs, "el", 5)
    wait_said(jobs, "SpecRefused", "maxReplicas 3")
    jobs.cluster.wait_for(KIND, jobs.namespace, "el", lambda job: replicas(job) == 0)
    assert uids(jobs) == {"el-master-0": before["el-master-0"]}


WORLD = """
import os, time
with open("/tmp/sizes", "a+") as file:
    file.write(os.environ["WORLD_SIZE"] + " ")
    file.seek(0)
    print("sizes", file.read(), flush=True)
while True: time.sleep(1)
"""


def test_the_torchruns_of_all_pods_of_an_elastic_job_make_one_world(jobs: Jobs):
    """It was a world of one in the master, beside workers that did nothing."""
    command = f"cat > /tmp/a.py <<'END'\n{WORLD}\nEND\ntorchrun /tmp/a.py"
    bounds = {"minReplicas": 2, "maxReplicas": 3}
    jobs.create(manifest(jobs, "tr", shell(command), elasticPolicy=bounds))
    wait_pods(jobs, "tr-master-0", "tr-worker-0")
    wait_sizes(jobs, "2", "tr-master-0", "tr-worker-0")
    set_workers(jobs, "tr", 2)
    wait_pods(jobs, "tr-master-0", "tr-worker-0", "tr-worker-1")
    wait_sizes(jobs, "2 3", "tr-master-0", "tr-worker-0")
    wait_sizes(jobs, "3", "tr-worker-1")
    wait_said(jobs, "ScaleOutSucceeded", "3 members")  # by the training's own word
    set_workers(jobs, "tr", 1)
    wait_pods(jobs, "tr-master-0", "tr-worker-0")
    wait_sizes(jobs, "2 3 2", "tr-master-0", "tr-worker-0")


def test_workers_alone_meet_as_in_kubeflows_examples(jobs: Jobs):
    """Each of them was a world of one."""
    start = "python3 -m torch.distributed.run --rdzv_backend=c10d --rdzv_endpoint=wo-worker-0:29400"
    command = f"cat > /tmp/a.py <<'END'\n{WORLD}\nEND\n{start} /tmp/a.py"
    bounds = {"rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 3, "maxRestarts": 100}
    made = manifest(jobs, "wo", shell(command), 2, elasticPolicy=bounds)
    del made["spec"]["pytorchReplicaSpecs"]["Master"]
    jobs.create(made)
    wait_pods(jobs, "wo-master-0", "wo-worker-0")
    wait_sizes(jobs, "2", "wo-master-0", "wo-worker-0")
    set_workers(jobs, "wo", 3)
    wait_pods(jobs, "wo-master-0", "wo-worker-0", "wo-worker-1")
    wait_sizes(jobs, "2 3", "wo-master-0", "wo-worker-0")
    wait_sizes(jobs, "3", "wo-worker-1")


def test_a_launcher_that_counts_its_nodes_has_all_of_them_and_keeps_them(jobs: Jobs):
    """It ran in the master alone, and scaling succeeded with workers that did nothing."""
    waits = f"{RING}\n".replace("sys.exit()\n", "time.sleep(600)\n", 1)
    command = f"deepspeed() {{ python3 -u - <<'END'\n{waits}\nEND\n}}\ndeepspeed train.py"
    bounds = {"minReplicas": 1, "maxReplicas": 3}
    jobs.create(manifest(jobs, "ds", shell(command), elasticPolicy=bounds))
    wait_pods(jobs, "ds-master-0", "ds-worker-0")
    whole = "rank 0 of 2 at ('ds-master-0', 23456) heard 1"
    jobs.cluster.wait_for_log(jobs.namespace, "ds-master-0", whole, SECONDS)
    wait_said(jobs, "FieldIgnored", "deepspeed counts its nodes when it starts")
    set_workers(jobs, "ds", 2)
    wait_said(jobs, "ScaleRefused", "has a fixed size of 2 workers")


def test_torchruns_that_a_script_hides_make_one_world_too(jobs: Jobs):
    script = f"cat > /tmp/a.py <<'END'\n{WORLD}\nEND\ntorchrun /tmp/a.py"
    hidden = f"cat > /tmp/b.sh <<'OUTER'\n{script}\nOUTER\nsh /tmp/b.sh"
    bounds = {"minReplicas": 2, "maxReplicas": 3}
    jobs.create(manifest(jobs, "hd", shell(hidden), elasticPolicy=bounds))
    wait_pods(jobs, "hd-master-0", "hd-worker-0")
    for pod in ("hd-master-0", "hd-worker-0"):
        jobs.cluster.wait_for_log(jobs.namespace, pod, "sizes 2 \n", SECONDS)


def wait_sizes(jobs: Jobs, sizes: str, *pods: str) -> None:
    """Of the worlds that the script of each pod was started in."""
    for pod in pods:
        jobs.cluster.wait_for_log(jobs.namespace, pod, f"sizes {sizes} \n", SECONDS)


def replicas(job: Json) -> int:
    return int(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"])


# --- its code -------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_all_pods_have_the_same_commit_though_the_branch_has_moved(jobs: Jobs, tmp_path: Path):
    repository = Repository(tmp_path)
    first = repository.commit()
    with served(str(repository.folder), repository.served) as source:
        sync = json.dumps({"mode": "git", "source": source, "branch": "main"})
        jobs.create(elastic(jobs, "code", **{SYNC: sync}))
        wait_pods(jobs, "code-master-0", "code-worker-0")
        assert repository.commit() != first
        set_workers(jobs, "code", 2)
        for name in wait_pods(jobs, "code-master-0", "code-worker-0", "code-worker-1"):
            log = jobs.cluster.log(jobs.namespace, name, container="midflight-code")
            assert log == f"{first} next\n"
        missing = json.dumps({"mode": "git", "source": source, "branch": "mian"})
        jobs.create(elastic(jobs, "typo", **{SYNC: missing}))
        ended = wait_phase(jobs, "typo", "Failed")
        assert "has no branch, tag or commit mian" in condition(ended, "Failed")["message"]


# --- whose they are -------------------------------------------------------------------------------


@pytest.fixture
def kubeflow(jobs: Jobs, operators: Operators) -> Iterator[None]:
    """A cluster in which the definition of a PyTorchJob is Kubeflow's, for a while."""

    def set_label(value: str | None) -> None:
        change = {"metadata": {"labels": {names.MANAGED_BY: value}}}
        jobs.cluster.patch(CRD, "", DEFINITION, change)
        operators.stop_all()
        operators.ensure_one()

    set_label(None)
    yield
    set_label(names.MANAGER)


def test_where_the_definition_is_kubeflows_ours_stands_back(jobs: Jobs, kubeflow: None):
    _ = kubeflow
    jobs.create(manifest(jobs, "theirs", shell(SLEEP)))
    jobs.idle("ours", workers=1)
    jobs.wait_workers("ours", 1)
    assert not [name for name in jobs.pods() if name.startswith("theirs")]
    theirs = jobs.cluster.get(KIND, jobs.namespace, "theirs")
    assert theirs is not None
    assert not theirs.get("status")
    assert not theirs["metadata"].get("finalizers")
