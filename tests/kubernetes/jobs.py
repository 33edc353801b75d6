"""Jobs and pods made by hand, for what is decided without a cluster."""

from collections.abc import Mapping
from typing import Any

from midflight.controller import roster
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Instance, Job, Phase, Role, Stage
from midflight.kubernetes.resources.pod import Pod

NOW = 1_700_000_000.0


def spec(**more: Any) -> Spec:
    usual: dict[str, Any] = {
        "kind": Kind.ETJOB,
        "name": "demo",
        "command": "midflight run -- python train.py",
        "workers": 2,
        "min_workers": 1,
        "max_workers": 4,
    }
    return Spec(**{**usual, **more})


def instance(name: str, stage: Stage = Stage.RUNNING, **more: Any) -> Instance:
    role = Role.LAUNCHER if name.endswith("launcher") else Role.WORKER
    index = 0 if role is Role.LAUNCHER else int(name.rpartition("-")[2])
    usual: dict[str, Any] = {"attempt": 1, "node": "" if stage is Stage.STARTING else "node-1"}
    return Instance(name, role, index, 0, NOW, stage, **{**usual, **more})


def running(workers: int = 2, **more: Any) -> Job:
    made = spec(workers=workers)
    names = [roster.chief_name(made), *(roster.worker_name(made, i) for i in range(workers))]
    instances = {name: instance(name) for name in names}
    usual: dict[str, Any] = {"phase": Phase.RUNNING, "instances": instances, "started_at": NOW}
    return Job(made, "uid-1", NOW, workers, **{**usual, **more})


def pod(name: str, phase: str = "Running", attempt: int = 1, **more: Any) -> Pod:
    role = "launcher" if name.endswith("launcher") else "worker"
    usual: dict[str, Any] = {"node": "node-1", "ip": "127.9.0.1"}
    head = (name, "default", f"uid-of-{name}", "uid-1", "demo", role, attempt, phase)
    return Pod(*head, **{**usual, **more})


def pods_of(job: Job, **others: Pod) -> Mapping[str, Pod]:
    """One that runs for each instance; others, by name with `_` for `-`, replace them."""
    found = {name: pod(name, attempt=i.attempt) for name, i in job.instances.items()}
    return found | {name.replace("_", "-"): each for name, each in others.items()}
