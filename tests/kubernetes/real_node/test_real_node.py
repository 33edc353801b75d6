"""Jobs in real containers, under a kubelet, containerd and runc, as on any cluster.

What process nodes cannot show: pods that run confined, as a user nobody knows, on a root that
cannot be written to; files that the kubelet writes, and when; names that are looked up.
"""

import json
import time

import pytest

from midflight.kubernetes import names
from midflight.kubernetes.pods.security import USER
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.cluster import ready
from tests.kubernetes.real_node.real_jobs import RealJobs
from tests.kubernetes.running.observations import wait_new_pod

pytestmark = [pytest.mark.slow, pytest.mark.real_node, pytest.mark.timeout(240)]
EPOCHS = 400  # more than enough at its pace; in a hurry they take a few seconds
SECONDS_TO_HOSTS = 10.0  # a kubelet that is not nudged takes up to a minute and a half
_STATUS = """
import json, os
read = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "user": os.getuid(), "groups": sorted({os.getgid(), *os.getgroups()}),
    **{name: read[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
}))
"""
_LOOK_UP = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
_STORE = """
import os
from midflight.store.kubernetes import KubernetesStore
from midflight.store.kubernetes_address import parse_kubernetes_url
with KubernetesStore(parse_kubernetes_url(os.environ["MIDFLIGHT_STORE"])) as store:
    print(store.put("test/key", b"value", expect=None).value)
"""


def test_pods_are_confined_containers_and_have_what_they_need(jobs: RealJobs) -> None:
    jobs.idle("idle", workers=1)
    jobs.wait_workers("idle", 1)
    for pod in ("idle-launcher", "idle-worker-0"):
        _check_confined(jobs, pod)
    own = jobs.pod("idle-launcher")["status"]["podIP"]
    short = f"{names.launcher_service('idle')}.{jobs.namespace}.svc"
    for name in (short, f"{short}.cluster.local"):
        assert _python(jobs, "idle-worker-0", _LOOK_UP, name) == f"{own}\n"
    _, complaint, status = jobs.run("idle-worker-0", "python3", "-c", _LOOK_UP, "nobody")
    assert status == 1 and "gaierror" in complaint
    # With its account's token, by way of the Service `kubernetes`; the worker has none.
    assert _python(jobs, "idle-launcher", _STORE) == "b'value'\n"
    account = "/var/run/secrets/kubernetes.io"
    assert jobs.run("idle-worker-0", "ls", account)[2] == 1


def test_the_hostfile_reaches_the_launcher_soon_after_it_changes(jobs: RealJobs) -> None:
    jobs.idle("idle", workers=1)
    jobs.wait_workers("idle", 1)
    took = []
    for workers, hosts in ((2, "idle-worker-0:1\nidle-worker-1:1\n"), (1, "idle-worker-0:1\n")):
        jobs.set_replicas("idle", workers)
        took.append(_seconds_to_hosts(jobs, "idle", hosts))
    print("seconds from a changed hostfile to the file in the launcher:", took)
    assert max(took) < SECONDS_TO_HOSTS
    script = f"{names.EDL}/discover_hosts.sh"
    assert jobs.run("idle-launcher", script) == ("idle-worker-0:1\n", "", 0)


def test_a_job_grows_and_shrinks_and_its_launcher_is_taken_over(jobs: RealJobs) -> None:
    jobs.counting("count", workers=1, epochs=EPOCHS)
    jobs.wait_training("count")
    jobs.scale_out("count", "count-1", 1)
    jobs.check_scaled("ScaleOut", "count-1")
    jobs.scale_in("count", "count-2", pods=["count-worker-0"])
    jobs.check_scaled("ScaleIn", "count-2")
    assert jobs.hostfile("count") == "count-worker-1:1\n"
    former = jobs.pod("count-launcher")["metadata"]["uid"]
    jobs.delete_pod("count-launcher", grace=0)
    wait_new_pod(jobs, "count-launcher", former, "Running")
    jobs.wait_training("count", "resuming run count where it was interrupted")
    jobs.hurry()
    jobs.wait_phase("count", "Succeeded")
    jobs.check_every_sample_once(EPOCHS)


def _check_confined(jobs: RealJobs, pod: str) -> None:
    assert ready(jobs.pod(pod))
    found = json.loads(_python(jobs, pod, _STATUS))
    assert found["user"] == USER and USER in found["groups"]
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 0
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    _, complaint, status = jobs.run(pod, "touch", "/mark")
    assert status == 1 and "Read-only file system" in complaint
    for folder in ("/tmp", names.JOB_DIR):
        assert jobs.run(pod, "touch", f"{folder}/mark") == ("", "", 0)
    token, _, _ = jobs.run(pod, "cat", names.TOKEN_FILE)
    assert len(token) == 64
    mode, _, _ = jobs.run(pod, "stat", "-L", "-c", "%a %g", names.TOKEN_FILE)
    assert mode == f"440 {USER}\n"


def _seconds_to_hosts(jobs: RealJobs, job: str, hosts: str) -> float:
    """Between the object and the file, which tells nobody when it changes: it is asked."""
    path = f"{names.EDL}/hostfile"

    def written(found: Json) -> bool:
        return bool(found["data"]["hostfile"] == hosts)

    jobs.cluster.wait_for("ConfigMap", jobs.namespace, names.config_map(job), written, 60)
    began = time.monotonic()
    while jobs.run(f"{job}-launcher", "cat", path)[0] != hosts:
        assert time.monotonic() - began < 2 * SECONDS_TO_HOSTS
    return round(time.monotonic() - began, 2)


def _python(jobs: RealJobs, pod: str, program: str, *words: str) -> str:
    out, complaint, status = jobs.run(pod, "python3", "-c", program, *words)
    assert status == 0, complaint
    return out
