"""The labels by which a job's pods and objects are found, and whom they belong to.

Beside Midflight's own, pods carry those of et-operator and of Kubeflow, since people's `kubectl get
pods -l` and dashboards know these.
"""

from typing import Any

from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Instance, Role
from midflight.kubernetes import names
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import part

_KUBEFLOW = "training.kubeflow.org"


def labels_of(spec: Spec, instance: Instance) -> dict[str, str]:
    index = {} if instance.role is Role.LAUNCHER else {names.INDEX: str(instance.index)}
    return {
        **selector(spec, instance.role),
        names.MANAGED_BY: names.MANAGER,
        names.ATTEMPT: str(instance.attempt),
        **index,
        **(_of_et_operator if spec.kind is Kind.ETJOB else _of_kubeflow)(spec, instance),
    }


def selector(spec: Spec, role: Role | None = None) -> dict[str, str]:
    """What all pods of the job have in common, or those of one role."""
    common = {names.JOB: spec.name, names.KIND: spec.kind.value}
    return common if role is None else {**common, names.ROLE: role.value}


def object_labels(job: str) -> dict[str, str]:
    return {names.JOB: job, names.MANAGED_BY: names.MANAGER}


def is_ours(obj: Object) -> bool:
    """Whether we have installed it; Helm replaces what `managed-by` says."""
    labels = obj["metadata"].get("labels") or {}
    return names.MANAGER in (labels.get(names.MANAGED_BY), labels.get(names.PART_OF))


def owner_reference(obj: Object, controller: bool = True) -> dict[str, Any]:
    """To the job: what it owns is deleted with it. `controller`: it is also managed by the job."""
    meta = part(obj, "metadata").value
    return {
        "apiVersion": obj.get("apiVersion", ""),
        "kind": obj.get("kind", ""),
        "name": meta.get("name", ""),
        "uid": meta.get("uid", ""),
        "controller": controller,
        "blockOwnerDeletion": controller,
    }


def _of_et_operator(spec: Spec, instance: Instance) -> dict[str, str]:
    found = {
        "group-name": names.GROUP,
        "training-job-name": spec.name,
        "training-job-role": instance.role.value,
    }
    return (
        found if instance.role is Role.LAUNCHER else found | {"replica-index": str(instance.index)}
    )


def _of_kubeflow(spec: Spec, instance: Instance) -> dict[str, str]:
    found = {
        f"{_KUBEFLOW}/operator-name": "pytorchjob-controller",
        f"{_KUBEFLOW}/job-name": spec.name,
        f"{_KUBEFLOW}/replica-type": instance.role.value,
        f"{_KUBEFLOW}/replica-index": str(instance.index),
    }
    if instance.role is Role.MASTER:
        found[f"{_KUBEFLOW}/job-role"] = "master"
    return found
