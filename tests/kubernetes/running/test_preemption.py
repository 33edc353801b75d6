"""Workers that the cluster takes away: its scheduler for what is more important, and a drain."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.cluster import phase
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.jobs import OUT, SLEEP, Jobs, condition
from tests.kubernetes.running.observations import uids, wait_said
from tests.kubernetes.running.recorded_steps import LEDGERS, TRAIN, finish, repeated
from tests.kubernetes.running.training import wait_members

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
NODE = "narrow"
ROOM = "3500m"  # three workers and their launcher, and nobody else
CLASSES = {"preempting-low": 10, "preempting-high": 1000}
LOW, HIGH = CLASSES
KIND = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}


@pytest.fixture
def narrow(jobs: Jobs) -> Iterator[None]:
    """A node that is soon full, and two classes of priority; they go when the job has gone."""
    for name, value in CLASSES.items():
        jobs.create({**KIND, "metadata": {"name": name}, "value": value})
    jobs.cluster.nodes.start(NODE, capacity={"cpu": ROOM})
    yield
    jobs.clear()
    jobs.cluster.nodes.remove(NODE)
    for name in CLASSES:
        jobs.cluster.delete("PriorityClass", "", name)


def submit(jobs: Jobs, folder: Path) -> None:
    flags = (
        f"--name=low --image=train --workers=3 --min-workers=1 --max-workers=3 --cpu=1"
        f" --priority={LOW} --selector=kubernetes.io/hostname={NODE}"
        f" --data-dir={jobs.out}:{OUT} --env={'='.join(LEDGERS)}"
    )
    with ClusterTerminal(jobs, folder) as terminal:
        terminal.types(f"midflight submit etjob {flags} '{TRAIN}'")


def important_pod(namespace: str) -> Json:
    """As large as a worker."""
    size = {"cpu": "1"}
    container = {"name": "main", "image": "any", "command": ["sh", "-c", SLEEP]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "important", "namespace": namespace},
        "spec": {
            "priorityClassName": HIGH,
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "terminationGracePeriodSeconds": 1,
            "containers": [{**container, "resources": {"requests": size, "limits": size}}],
        },
    }


def test_a_preempted_worker_leaves_between_two_steps_and_returns_when_there_is_room(
    jobs: Jobs, narrow: None, tmp_path: Path
) -> None:
    submit(jobs, tmp_path)
    first = wait_members(jobs, "low", 3)
    before = uids(jobs)
    assert {pod["spec"]["priority"] for pod in jobs.pods().values()} == {CLASSES[LOW]}

    jobs.create(important_pod(jobs.namespace))
    jobs.cluster.wait_for("Pod", jobs.namespace, "important", phase("Running"), 60)
    wait_said(jobs, "Preempted", f"by {jobs.namespace}/important on node {NODE}")
    waiting = jobs.wait_for("low", lambda job: "Insufficient cpu" in running(job))
    assert running(waiting).startswith("2 of 3 workers run; low-worker-")
    two = wait_members(jobs, "low", 2)
    assert (two.resets, two.generation) == (0, first.generation + 1)
    after = uids(jobs)
    (victim,) = {name for name in before if after.get(name) != before[name]}
    assert victim in running(waiting)
    assert f"host {victim} leaves within 28 s" in jobs.wait_training("low", "leaves within")
    wait_said(jobs, "Lost", "lost with its pod, which was deleted")

    jobs.delete_pod("important")
    three = wait_members(jobs, "low", 3)
    assert (three.resets, three.generation) == (0, two.generation + 1)
    assert victim in {member.host for member in three.members}
    finish(jobs, "low")
    assert repeated(jobs) == []


def running(job: Json) -> str:
    """What the job says of itself while it runs."""
    return str(condition(job, "Running").get("message", ""))


# --- a drain --------------------------------------------------------------------------------------


def evict(jobs: Jobs, pod: str) -> None:
    """As `kubectl drain` does it; an ApiError of status 429 is the budget's no."""
    meta = {"name": pod, "namespace": jobs.namespace}
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": meta}
    path = jobs.cluster.path("Pod", jobs.namespace, pod)
    jobs.cluster.api.call("POST", f"{path}/eviction", body)


def wait_allowed(jobs: Jobs, count: int) -> None:
    """So many evictions, as the cluster's own controller has it."""
    jobs.cluster.wait_for(
        "PodDisruptionBudget",
        jobs.namespace,
        "idle",
        lambda budget: budget.get("status", {}).get("disruptionsAllowed") == count,
    )


def test_a_drain_goes_down_to_what_the_job_needs_though_no_other_node_has_room(jobs: Jobs) -> None:
    """It never ended: the budget was for all workers that were wanted."""
    jobs.idle(workers=3, least=1)
    jobs.wait_workers("idle", 3)
    for name in jobs.cluster.nodes.names:
        jobs.cluster.patch("Node", "", name, {"spec": {"unschedulable": True}})
    before = uids(jobs)
    for left in (2, 1):
        wait_allowed(jobs, left)
        evict(jobs, f"idle-worker-{left}")
    wait_allowed(jobs, 0)
    with pytest.raises(ApiError, match="429"):
        evict(jobs, "idle-worker-0")
    assert uids(jobs)["idle-worker-0"] == before["idle-worker-0"]
    jobs.cluster.nodes.uncordon()
    jobs.wait_workers("idle", 3)
