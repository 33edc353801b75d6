"""Pods as the operator renders them, and what tests look at in one."""

from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.pod import render
from tests.kubernetes.job_objects import Json, chief_of, job_of, worker_of

PLAIN = ["python", "train.py"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SYNC = {"mode": "git", "source": "https://git.example/a/mnist.git", "branch": "dev"}
ELASTIC = {"minReplicas": 1, "maxReplicas": 4}
TORCHRUN = ["python", "-m", "torch.distributed.run", "/opt/train.py"]


def chief(obj: Json, site: PodDefaults = PodDefaults(), commit: str = "") -> Json:  # noqa: B008
    job = job_of(obj, commit)
    return render(obj, job, chief_of(job), site)


def worker(obj: Json, index: int = 0, attempt: int = 1, site: PodDefaults = PodDefaults()) -> Json:  # noqa: B008
    job = job_of(obj)
    return render(obj, job, worker_of(job, index, attempt), site)


def main(pod: Json) -> Json:
    found: Json = pod["spec"]["containers"][0]
    return found


def env(pod: Json) -> dict[str, str]:
    return {each["name"]: each.get("value", "(from elsewhere)") for each in main(pod)["env"]}


def mounts(pod: Json) -> dict[str, str]:
    return {each["mountPath"]: each["name"] for each in main(pod)["volumeMounts"]}


def security(pod: Json) -> Json:
    found: Json = main(pod)["securityContext"]
    return found
