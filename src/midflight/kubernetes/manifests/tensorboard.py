"""TensorBoard beside a job: a Deployment that sees the job's data, read-only, and a Service.

It asks nobody who they are, so a NetworkPolicy lets nobody in but `kubectl port-forward`, which
comes from the node. `--tensorboard-node-port` opens it to all who reach a node.

It shows what lies under `--logdir`, so that folder has to be on a claim or a folder of the host
that the job mounts. It goes as near to the job as there is room, because such volumes may not reach
every node. It needs no rights and gets none.
"""

from typing import Any

from midflight.controller.spec import Spec
from midflight.kubernetes import names
from midflight.kubernetes.manifests.pod_templates import (
    filled,
    pull_secrets,
    tolerations,
    user_labels,
)
from midflight.kubernetes.manifests.volumes import data_volumes

IMAGE = "tensorflow/tensorflow:2.16.1"
LOGDIR = "/training_logs"
PORT = 6006
_NOBODY = 65534
_RESOURCES = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


def tensorboard(spec: Spec, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """`metadata`: of each object, without its name."""
    named = {"name": f"{spec.name}-tensorboard", **metadata}
    # Not by the label of the job's own pods, which are watched and shut off from others.
    selector = {"release": spec.name, "role": "tensorboard"}
    template = {"metadata": {"labels": {**user_labels(spec), **selector}}, "spec": _pod(spec)}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": named,
        "spec": {"replicas": 1, "selector": {"matchLabels": selector}, "template": template},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": named,
        "spec": {
            "type": "NodePort" if spec.container.tensorboard_node_port else "ClusterIP",
            "selector": selector,
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
        },
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": named,
        "spec": {"podSelector": {"matchLabels": selector}, "policyTypes": ["Ingress"]},
    }
    return [deployment, service, *([] if spec.container.tensorboard_node_port else [policy])]


def _pod(spec: Spec) -> dict[str, Any]:
    mounted = data_volumes(spec)
    found = {
        "affinity": _near(spec),
        "tolerations": tolerations(spec),
        "imagePullSecrets": pull_secrets(spec),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec)],
        "volumes": [{"name": volume.name, **volume.source} for volume in mounted],
    }
    return {**filled(found), "automountServiceAccountToken": False}


def _near(spec: Spec) -> dict[str, Any]:
    term = {
        "labelSelector": {
            "matchLabels": {names.JOB: spec.name},
            "matchExpressions": [{"key": names.ROLE, "operator": "Exists"}],
        },
        "topologyKey": "kubernetes.io/hostname",
    }
    preferred = {"weight": 100, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def _container(spec: Spec) -> dict[str, Any]:
    own = spec.container
    logdir = own.logdir or LOGDIR
    mounts = [
        {"name": volume.name, **mount, "readOnly": True}
        for volume in data_volumes(spec)
        for mount in volume.mounts
    ]
    found = {
        "name": "tensorboard",
        "image": own.tensorboard_image or IMAGE,
        "command": ["tensorboard", "--logdir", logdir, "--host", "0.0.0.0", "--port", str(PORT)],
        "ports": [{"containerPort": PORT}],
        "resources": _RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    return filled(found)
