"""The dependents of a job: objects that must exist before its pods, and that go with the job.

An elastic job has a Secret with its token, a ConfigMap with the hostfile and the discovery script,
one for its coordinator's state, a Service for its launcher, and a ServiceAccount that may change
that state and nothing else, and a PodDisruptionBudget. Every job has a NetworkPolicy; a gang has a
PodGroup. All are created once; afterwards only `hosts` and `budget` change. `logs` comes later.
"""

import base64
from collections.abc import Mapping
from typing import Any

from midflight.controller.roster import is_elastic
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Job, Role
from midflight.kubernetes import names
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.gang import gang_of, pod_group
from midflight.kubernetes.pods.pod import master_port
from midflight.kubernetes.resources.elastic_policy import (
    chief_host,
    may_run_torchrun,
    rendezvous_port,
    torchrun_in_every_pod,
)
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.job_spec import min_available
from midflight.kubernetes.resources.labels import object_labels, owner_reference, selector
from midflight.kubernetes.resources.templates import chief_role, part, template_of

HOSTFILE, DEEPSPEED, SCRIPT = "hostfile", "deepspeed_hostfile", "discover_hosts.sh"
_TRAINING_ROLES = [Role.MASTER.value, Role.WORKER.value]  # of a PyTorchJob
_DISCOVER = f"#!/bin/sh\nexec cat {names.EDL}/{HOSTFILE}\n"


def objects(
    obj: Object, job: Job, token: str, defaults: PodDefaults, pdb_api: str = "policy/v1"
) -> list[dict[str, Any]]:
    """`pdb_api` is policy/v1beta1 for a cluster older than 1.21."""
    spec = job.spec
    around = [
        *_services(obj, spec),
        _network_policy(obj, spec, defaults),
        *([made] if (made := budget(obj, spec, defaults, pdb_api))["spec"]["minAvailable"] else []),
        *_pod_group(obj, spec),
    ]
    if not is_elastic(spec):
        return around
    return [
        _token(obj, job, token, defaults),
        hosts(obj, {}),
        _made(obj, "v1", "ConfigMap", names.state_map(spec.name), {}),
        *_account(obj, spec),
        *around,
    ]


def hosts(obj: Object, hosts: Mapping[str, int]) -> dict[str, Any]:
    """The ConfigMap with the workers that are up, and their slots, in both ways of writing."""
    lines = "".join(f"{name}:{slots}\n" for name, slots in hosts.items())
    spaced = "".join(f"{name} slots={slots}\n" for name, slots in hosts.items())
    data = {HOSTFILE: lines, DEEPSPEED: spaced, SCRIPT: _DISCOVER}
    return _made(obj, "v1", "ConfigMap", names.config_map(_name(obj)), {"data": data})


def logs(obj: Object, data: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap that is made when a pod has failed and is about to be replaced."""
    return _made(obj, "v1", "ConfigMap", names.logs_map(_name(obj)), {"data": dict(data)})


def _token(obj: Object, job: Job, token: str, defaults: PodDefaults) -> dict[str, Any]:
    name = names.token_secret(job.spec.name, job.uid, defaults.key)
    data = {"token": base64.b64encode(token.encode()).decode()}
    return _made(obj, "v1", "Secret", name, {"type": "Opaque", "data": data})


def _services(obj: Object, spec: Spec) -> list[dict[str, Any]]:
    """Names for the chief: as the coordinator, as the master, or as both."""
    found = []
    if is_elastic(spec) and not torchrun_in_every_pod(spec):
        launcher = names.launcher_service(spec.name)
        found.append(_service(obj, spec, launcher, "coordinator", names.PORT))
    master = names.master_service(spec.name)
    purpose, port = "rendezvous", rendezvous_port(obj)
    if not is_elastic(spec):
        purpose, port = "master", master_port(obj)
    elif not may_run_torchrun(obj, spec):
        return found
    for name in sorted({master, chief_host(obj, spec)}):
        found.append(_service(obj, spec, name, purpose, port))
    return found


def _service(obj: Object, spec: Spec, name: str, purpose: str, port: int) -> dict[str, Any]:
    """Before the chief is ready too; without an address of its own."""
    body = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(spec, chief_role(obj)),
        "ports": [{"name": purpose, "port": port, "protocol": "TCP"}],
    }
    return _made(obj, "v1", "Service", name, {"spec": body})


def _account(obj: Object, spec: Spec) -> list[dict[str, Any]]:
    """An account that the user has named is given the role instead of one of ours."""
    pod = part(template_of(obj, chief_role(obj)).value, "spec").value
    named, own = pod.get("serviceAccountName"), names.service_account(spec.name)
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [names.state_map(spec.name)],
        "verbs": ["get", "update", "watch"],
    }
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": own},
        "subjects": [{"kind": "ServiceAccount", "name": named or own, "namespace": spec.namespace}],
    }
    return [
        *([] if named else [_made(obj, "v1", "ServiceAccount", own, _UNMOUNTED)]),
        _made(obj, f"{group}/v1", "Role", own, {"rules": [rule]}),
        _made(obj, f"{group}/v1", "RoleBinding", own, binding),
    ]


_UNMOUNTED = {"automountServiceAccountToken": False}  # pods that want its token say so


def _network_policy(obj: Object, spec: Spec, defaults: PodDefaults) -> dict[str, Any]:
    """Its pods hear each other, and the operator where a coordinator listens; they may call all."""
    ingress: list[dict[str, Any]] = [
        {"from": [{"podSelector": {"matchLabels": selector(spec)}}]},
    ]
    if is_elastic(spec):
        operator = {"namespaceSelector": {"matchLabels": dict([defaults.operator])}}
        port = rendezvous_port(obj) if torchrun_in_every_pod(spec) else names.PORT
        ingress.append({"from": [operator], "ports": [{"protocol": "TCP", "port": port}]})
    body = {
        "podSelector": {"matchLabels": selector(spec)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return _made(obj, "networking.k8s.io/v1", "NetworkPolicy", spec.name, {"spec": body})


def budget(
    obj: Object, spec: Spec, defaults: PodDefaults, api: str = "policy/v1"
) -> dict[str, Any]:
    """A drain may take workers down to what the job needs; 0 stands for no budget."""
    roles = [Role.WORKER.value] if spec.kind is Kind.ETJOB else _TRAINING_ROLES
    picks = {
        "matchLabels": selector(spec),
        "matchExpressions": [{"key": names.ROLE, "operator": "In", "values": roles}],
    }
    body = {"minAvailable": min_available(obj, spec, defaults.min_available), "selector": picks}
    return _made(obj, api, "PodDisruptionBudget", spec.name, {"spec": body})


def _pod_group(obj: Object, spec: Spec) -> list[dict[str, Any]]:
    if (gang := gang_of(obj, spec)) is None:
        return []
    api, body = pod_group(gang)
    return [_made(obj, api, names.PODGROUP, gang.name, {"spec": body})]


def _made(obj: Object, api: str, kind: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    meta = part(obj, "metadata").value
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.get("namespace") or "default",
            "labels": object_labels(_name(obj)),
            "ownerReferences": [owner_reference(obj)],
        },
        **body,
    }


def _name(obj: Object) -> str:
    return str(part(obj, "metadata").value.get("name", ""))
