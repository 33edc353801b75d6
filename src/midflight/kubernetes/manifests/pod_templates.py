"""The pod templates of a job that was submitted, with every flag at its place and nothing else.

What Midflight itself needs in a pod (the agent, its token, a security context) is the operator's to
add, so that a TrainingJob reads like what its author meant. Launchers start the training and take
no part in it: no devices, no limits of theirs, and workers' selectors are not for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midflight.controller.spec import Kind, Spec
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.manifests.flags import (
    labels,
    object_name,
    own_labels,
    pairs,
    toleration,
    verbatim,
)
from midflight.kubernetes.manifests.volumes import volumes, working_dir
from midflight.kubernetes.resources.devices import is_accelerator

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class Part:
    """The pods of one role."""

    container: str
    runs_command: bool
    trains: bool
    annotations: Mapping[str, str] = field(default_factory=dict)
    selectors: Mapping[str, str] = field(default_factory=dict)


def launcher(spec: Spec) -> dict[str, Any]:
    own = spec.container
    part = Part(
        "et",
        runs_command=True,
        trains=False,
        annotations=pairs("--launcher-annotation", own.launcher_annotations),
        selectors=labels(
            "--launcher-selector", pairs("--launcher-selector", own.launcher_selectors)
        ),
    )
    return _template(spec, part)


def worker(spec: Spec) -> dict[str, Any]:
    """Of an etjob: it has no command, for the operator puts an agent there."""
    part = Part(
        "et",
        runs_command=False,
        trains=True,
        annotations=pairs("--worker-annotation", spec.container.worker_annotations),
        selectors=labels("--selector", spec.selectors),
    )
    return _template(spec, part)


def trainer(spec: Spec) -> dict[str, Any]:
    """Of a pytorchjob, master and worker alike. Kubeflow looks for its container by name."""
    selectors = labels("--selector", spec.selectors)
    return _template(spec, Part("pytorch", runs_command=True, trains=True, selectors=selectors))


def tolerations(spec: Spec) -> list[dict[str, Any]]:
    return [toleration(text) for text in spec.container.tolerations]


def pull_secrets(spec: Spec) -> list[dict[str, str]]:
    found = spec.container.image_pull_secrets
    return [{"name": object_name("--image-pull-secret", name)} for name in found]


def user_labels(spec: Spec) -> dict[str, str]:
    """Arena's, which tools look for, and the user's, which win."""
    kind = spec.kind.value
    own = own_labels("--label", spec.labels)
    return {"app": kind, "release": spec.name, "createdBy": kind, **own}


def filled(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says nothing."""
    return {key: value for key, value in found.items() if value not in (None, "", False, {}, [])}


# --- a template -----------------------------------------------------------------------------------


def _template(spec: Spec, part: Part) -> dict[str, Any]:
    annotations = {**pairs("--annotation", spec.container.annotations), **part.annotations}
    metadata = {"labels": {**user_labels(spec), **_gang(spec)}, "annotations": annotations}
    return {"metadata": filled(metadata), "spec": _pod(spec, part)}


def _gang(spec: Spec) -> dict[str, str]:
    """On every pod of the job, or a scheduler would wait for more pods than there will be."""
    if not spec.container.gang:
        return {}
    launchers = 1 if spec.kind is Kind.ETJOB else 0
    return {
        names.POD_GROUP: names.pod_group(spec.kind.value, spec.name),
        names.POD_GROUP_MIN: str(spec.least + launchers),
    }


def _pod(spec: Spec, part: Part) -> dict[str, Any]:
    own = spec.container
    found = {
        "nodeSelector": dict(part.selectors),
        "tolerations": tolerations(spec),
        "schedulerName": own.scheduler,
        "priorityClassName": own.priority and object_name("--priority", own.priority),
        "imagePullSecrets": pull_secrets(spec),
        "hostNetwork": own.host_network,
        "dnsPolicy": "ClusterFirstWithHostNet" if own.host_network else "",
        "hostIPC": own.host_ipc,
        "hostPID": own.host_pid,
        "containers": [_container(spec, part)],
        "volumes": [{"name": volume.name, **volume.source} for volume in volumes(spec)],
    }
    return filled(found)


def _container(spec: Spec, part: Part) -> dict[str, Any]:
    command = [spec.shell, "-c", verbatim(spec.command)] if part.runs_command else []
    lock = {"capabilities": {"add": ["IPC_LOCK"]}}
    mounts = [{"name": volume.name, **m} for volume in volumes(spec) for m in volume.mounts]
    found = {
        "name": part.container,
        "image": spec.container.image,
        "imagePullPolicy": _pull_policy(spec.container.image_pull_policy),
        "command": command,
        "workingDir": working_dir(spec),
        "env": environment(spec, part.trains),
        "resources": _resources(spec) if part.trains else {},
        "securityContext": lock if spec.container.rdma and part.trains else {},
        "volumeMounts": mounts,
    }
    return filled(found)


def _pull_policy(policy: str) -> str:
    if policy not in PULL_POLICIES:
        raise UsageError(
            f"--image-pull-policy is invalid: wanted {_one_of(PULL_POLICIES)}, got {policy!r}"
        )
    return policy


def _one_of(known: Sequence[str]) -> str:
    return f"{', '.join(known[:-1])} or {known[-1]}"


def environment(spec: Spec, trains: bool) -> list[dict[str, str]]:
    """The user's variables, then those that commands of the guides compute their sizes from."""
    own = {"workers": str(spec.workers), "gpus": str(spec.gpus)}
    if spec.kind is Kind.ETJOB:
        own |= {"maxWorkers": str(spec.most), "minWorkers": str(spec.least)}
    if not _sees_gpus(spec, trains):
        own["NVIDIA_VISIBLE_DEVICES"] = "void"  # images say "all", which is the whole node
    users = {name: verbatim(value) for name, value in spec.env.items() if name not in own}
    return [{"name": name, "value": value} for name, value in {**users, **own}.items()]


def _sees_gpus(spec: Spec, trains: bool) -> bool:
    devices = {item.partition("=")[0] for item in spec.container.devices} | spec.labels.keys()
    return trains and (spec.gpus > 0 or any(map(is_accelerator, devices)))


def _resources(spec: Spec) -> dict[str, Any]:
    both = filled({"cpu": spec.cpu, "memory": spec.memory})
    if spec.container.rdma:
        both["rdma/hca"] = "1"
    devices = dict(item.split("=", 1) for item in spec.container.devices)
    if spec.gpus:
        devices[names.GPU] = str(spec.gpus)
    return filled({"limits": {**both, **devices}, "requests": both})
