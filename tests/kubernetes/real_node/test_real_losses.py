"""Workers that a real kubelet evicts and that the kernel ends for want of memory: training goes on.

Nothing is written into a pod's status here. The kubelet finds a volume over its limit, the kernel a
container over its own, and each does what it does on any cluster.
"""

from pathlib import Path

import pytest

from tests.kubernetes.plane.api import Json
from tests.kubernetes.real_node.real_jobs import RealJobs
from tests.kubernetes.running.guide_terminal import ClusterTerminal
from tests.kubernetes.running.observations import history, now, wait_new_pod, wait_said
from tests.kubernetes.running.recorded_steps import LEDGERS, TRAIN, finish, repeated
from tests.kubernetes.running.training import wait_members

pytestmark = [pytest.mark.slow, pytest.mark.real_node, pytest.mark.timeout(360)]
MEMORY = "1Gi"
SWAPS = len(Path("/proc/swaps").read_text().splitlines()) > 1
OVERFILLED = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Mi"'
OOM = "was killed: it used more memory than its limit (OOMKilled)"
# How often the kernel ended a process of this container for it: control groups of both versions.
KILLS = "cat /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events 2>/dev/null"


def train(jobs: RealJobs) -> None:
    """Two members, each with a scratch volume and not too much memory."""
    manifest = jobs.manifest("struck", f"midflight run -np 2 --min-np 1 --max-np 2 -- {TRAIN}", 2)
    chief, pod = (
        manifest["spec"]["etReplicaSpecs"][role]["template"]["spec"]
        for role in ("launcher", "worker")
    )
    chief["containers"][0]["env"].append(dict(zip(("name", "value"), LEDGERS, strict=True)))
    container = pod["containers"][0]
    container["resources"]["limits"] = {"memory": MEMORY}
    container["volumeMounts"].append({"name": "scratch", "mountPath": "/scratch"})
    pod["volumes"].append({"name": "scratch", "emptyDir": {"sizeLimit": "10Mi"}})
    jobs.create(manifest)
    wait_members(jobs, "struck", 2)


def first_end(jobs: RealJobs, since: str, name: str) -> Json:
    """The status in which a pod was over first, before anybody had deleted it."""
    seen = [pod for _, pod in history(jobs, since) if pod["metadata"]["name"] == name]
    kept = [pod["status"] for pod in seen if "deletionTimestamp" not in pod["metadata"]]
    return dict(next(status for status in kept if status["phase"] == "Failed"))


def overfill_volume(jobs: RealJobs, name: str) -> None:
    """Until the kubelet looks at it, which it does every ten seconds."""
    since, former = now(jobs), jobs.pod(name)["metadata"]["uid"]
    fill = ("dd", "if=/dev/zero", "of=/scratch/much", "bs=1M", "count=20")
    assert jobs.run(name, *fill)[2] == 0
    wait_new_pod(jobs, name, former)
    end = first_end(jobs, since, name)
    assert end["reason"] == "Evicted" and OVERFILLED in end["message"]
    wait_said(jobs, "Evicted", OVERFILLED)  # by the kubelet


def eat_memory(jobs: RealJobs, name: str) -> None:
    """Until the kernel ends the member that does; its pod stays."""
    (jobs.out / f"eat-{name}").touch()
    jobs.wait_training("struck", "killed by SIGKILL")
    assert "oom_kill 1\n" in jobs.run(name, "sh", "-c", KILLS)[0]


def fill_shared_memory(jobs: RealJobs, name: str) -> None:
    """It belongs to no process: the kernel ends them all in vain, and the agent sooner or later."""
    since, former = now(jobs), jobs.pod(name)["metadata"]["uid"]
    fill = "dd if=/dev/zero of=/dev/shm/much bs=1M >/dev/null 2>&1 &"
    assert jobs.run(name, "sh", "-c", fill)[2] == 0
    wait_new_pod(jobs, name, former)
    (ended,) = first_end(jobs, since, name)["containerStatuses"]
    found = ended["state"]["terminated"]
    assert (found["reason"], found["exitCode"]) == ("OOMKilled", 137)


@pytest.mark.skipif(SWAPS, reason="memory over a limit is swapped out here, and nobody is killed")
def test_workers_that_are_evicted_or_run_out_of_memory_are_replaced_and_the_job_tells_why(
    jobs: RealJobs, tmp_path: Path
) -> None:
    train(jobs)
    overfill_volume(jobs, "struck-worker-1")
    jobs.wait_training("struck", "went on with 1 member")
    assert wait_members(jobs, "struck", 2).resets == 1
    eat_memory(jobs, "struck-worker-1")
    fill_shared_memory(jobs, "struck-worker-1")
    losses = wait_members(jobs, "struck", 2).resets
    finish(jobs, "struck")
    assert len(repeated(jobs)) <= losses <= 3  # each cost the one that stayed a step at the most
    wait_said(jobs, "Lost", f"Evicted: {OVERFILLED}")
    wait_said(jobs, "Failed", OOM)
    with ClusterTerminal(jobs, tmp_path) as terminal:
        told = terminal.types("midflight events struck").out
    assert f"Evicted: {OVERFILLED}" in told and OOM in told
