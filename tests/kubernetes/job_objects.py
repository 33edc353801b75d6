"""TrainingJobs and PyTorchJobs as the API server would hand them out, and the jobs made of them."""

import copy
from typing import Any

from midflight.controller.spec import Kind
from midflight.controller.state import Instance, Job, Role
from midflight.kubernetes.resources.job_spec import spec_of

Json = dict[str, Any]
UID = "7d9f3c52-0d6c-4d3e-9d43-6a5e1f0c2b11"
HOROVODRUN = (
    "horovodrun -np $((${workers}*${gpus})) --min-np $((${minWorkers}*${gpus})) "
    "--host-discovery-script /etc/edl/discover_hosts.sh python /examples/train.py"
)


def training_job(command: list[str] | None = None, **spec: Any) -> Json:
    """As a user of et-operator writes one; `spec` goes beside etReplicaSpecs."""
    launcher = {
        "name": "et",
        "image": "example/train:1",
        "command": command or ["sh", "-c", HOROVODRUN],
        "workingDir": "/examples",
        "env": [{"name": "LR", "value": "0.1"}],
    }
    worker = {
        "name": "et",
        "image": "example/train:1",
        "workingDir": "/examples",
        "env": [{"name": "LR", "value": "0.1"}],
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}},
    }
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "elastic", "namespace": "team", "uid": UID},
        "spec": {
            "cleanPodPolicy": "Running",
            "etReplicaSpecs": {
                "launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "worker": {
                    "replicas": 3,
                    "minReplicas": 1,
                    "maxReplicas": 9,
                    "template": {
                        "metadata": {"labels": {"app": "etjob"}},
                        "spec": {"containers": [worker], "terminationGracePeriodSeconds": 60},
                    },
                },
            },
            **spec,
        },
    }


def pytorch_job(command: list[str] | None = None, workers: int = 2, **spec: Any) -> Json:
    """A master and `workers` others."""
    container = {
        "name": "pytorch",
        "image": "example/torch:1",
        "command": command or ["python", "/opt/train.py", "--epochs", "3"],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    template = {"spec": {"containers": [container]}}
    replicas = {
        "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
        "Worker": {
            "replicas": workers,
            "restartPolicy": "OnFailure",
            "template": copy.deepcopy(template),
        },
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "fixed", "namespace": "team", "uid": UID, "annotations": {}},
        "spec": {"pytorchReplicaSpecs": replicas, **spec},
    }


def pod_spec(obj: Json, role: str) -> Json:
    """Of a template, to be changed: launcher, worker, Master or Worker."""
    spec = obj["spec"]
    replicas = spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]
    found: Json = replicas[role]["template"]["spec"]
    return found


def job_of(obj: Json, commit: str = "") -> Job:
    spec = spec_of(obj)
    return Job(spec, UID, 0.0, spec.workers, commit=commit)


def chief_of(job: Job, attempt: int = 1) -> Instance:
    if job.spec.kind is Kind.ETJOB:
        name, role, gpus = f"{job.spec.name}-launcher", Role.LAUNCHER, 0
    else:
        name, role, gpus = f"{job.spec.name}-master-0", Role.MASTER, job.spec.gpus
    return Instance(name, role, 0, gpus, 0.0, attempt=attempt)


def worker_of(job: Job, index: int = 0, attempt: int = 1) -> Instance:
    name = f"{job.spec.name}-worker-{index}"
    return Instance(name, Role.WORKER, index, job.spec.gpus, 0.0, attempt=attempt)
