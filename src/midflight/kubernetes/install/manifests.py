"""The operator's own objects, as manifests: what `midflight operator install` applies, and deploy/.

Pure: a namespace, an image, a number of replicas and a scope in, a list of objects out, in an order
in which they can be applied. The kinds it serves (crds.py) come first, then who may do what
(rbac.py), then what runs. `scope` is the one namespace whose jobs are run, "" for all.
"""

from collections.abc import Sequence
from typing import Any

import midflight
from midflight.kubernetes import names
from midflight.kubernetes.install import rbac
from midflight.kubernetes.install.rbac import OPERATOR
from midflight.kubernetes.resources import crds

NAMESPACE = "midflight-system"
IMAGE = f"midflight:{midflight.__version__}"
REPLICAS = 2
USER = 65532  # as in the Dockerfile
HTTP_PORT = 8080  # health, readiness and metrics

NAME = "app.kubernetes.io/name"
VERSION = "app.kubernetes.io/version"
INSTALLED = f"{names.OURS}/installed-in"  # label of an installation: the operator's namespace
SCOPE = f"{names.OURS}/scope"  # label of the Deployment: the namespace, or ALL
ALL = "cluster"

_POD_LABELS = {NAME: OPERATOR}
_HOST, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

Object = dict[str, Any]


def objects(
    namespace: str = NAMESPACE, image: str = IMAGE, replicas: int = REPLICAS, scope: str = ""
) -> list[Object]:
    return [*kinds(), *operator(namespace, image, replicas, scope)]


def kinds() -> list[Object]:
    """The custom resources and who may use them: the same for all installations of a cluster."""
    return [_ours(made) for made in [*crds.crds(), *rbac.for_users()]]


def operator(
    namespace: str, image: str, replicas: int, scope: str, options: Sequence[str] = ()
) -> list[Object]:
    """What runs, and what it needs: one installation's own. `options`: more of `operator run`."""
    made = [
        *([] if scope else [_namespace(namespace)]),
        _service_account(namespace),
        *rbac.roles(namespace, scope),
        _network_policy(namespace),
        _service(namespace),
        *([_disruption_budget(namespace)] if replicas > 1 else []),
        _deployment(
            namespace, replicas, scope, _container(image, _watched(namespace, scope), options)
        ),
    ]
    # With a scope the namespace is somebody's already, and remains so.
    around = [marked(namespace)] if scope else []
    return [*around, *(_ours(one, {INSTALLED: namespace}) for one in made)]


def marked(namespace: str) -> Object:
    """A namespace as the one from which operators call: pods of jobs listen to those alone."""
    meta = {"name": namespace, "labels": {NAME: OPERATOR}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def _ours(made: Object, more: dict[str, str] | None = None) -> Object:
    meta = made["metadata"]
    labels = {
        **(meta.get("labels") or {}),
        names.MANAGED_BY: names.MANAGER,
        names.PART_OF: names.MANAGER,
        **(more or {}),
    }
    return {**made, "metadata": {**meta, "labels": labels}}


def _namespace(name: str) -> Object:
    made = marked(name)
    for mode in ("enforce", "warn"):
        made["metadata"]["labels"][f"pod-security.kubernetes.io/{mode}"] = "restricted"
    return made


def _service_account(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": OPERATOR, "namespace": namespace},
        "automountServiceAccountToken": False,
    }


def _service(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{OPERATOR}-metrics", "namespace": namespace},
        "spec": {
            "selector": _POD_LABELS,
            "ports": [{"name": "metrics", **_tcp(HTTP_PORT), "targetPort": "http"}],
        },
    }


def _network_policy(namespace: str) -> Object:
    """In: who reads metrics. Out: names, and TCP, since API servers listen on any port."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": OPERATOR, "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": _POD_LABELS},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [_tcp(HTTP_PORT)]}],
            "egress": [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP"}]}],
        },
    }


def _tcp(port: int) -> Object:
    return {"protocol": "TCP", "port": port}


def _disruption_budget(namespace: str) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": OPERATOR, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _POD_LABELS}},
    }


def _watched(namespace: str, scope: str) -> str:
    return "$(POD_NAMESPACE)" if scope == namespace else scope


def _deployment(namespace: str, replicas: int, scope: str, container: Object) -> Object:
    labels = {SCOPE: scope or ALL, VERSION: midflight.__version__}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": namespace, "labels": _POD_LABELS | labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _POD_LABELS},
            # The next one is there before the last one goes; the lease says which of them works.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {"labels": _POD_LABELS | {names.PART_OF: names.MANAGER}},
                "spec": _pod(container),
            },
        },
    }


def _pod(container: Object) -> Object:
    return {
        "serviceAccountName": OPERATOR,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": _apart()},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": _ZONE,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _POD_LABELS},
            }
        ],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
    }


def _apart() -> Object:
    term = {"labelSelector": {"matchLabels": _POD_LABELS}, "topologyKey": _HOST}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"preferredDuringSchedulingIgnoredDuringExecution": preferred}


def _container(image: str, watched: str, options: Sequence[str]) -> Object:
    arguments = [
        "--lease-namespace=$(POD_NAMESPACE)",
        "--runtime-image=$(RUNTIME_IMAGE)",
        f"--listen=0.0.0.0:{HTTP_PORT}",
        *([f"--watch-namespace={watched}"] if watched else []),
        *options,
    ]
    return {
        "name": "operator",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["midflight", "operator", "run"],
        "args": arguments,
        "env": [
            _field("POD_NAME", "metadata.name"),
            _field("POD_NAMESPACE", "metadata.namespace"),
            # A variable, so that kustomize can copy the container's image to it.
            {"name": "RUNTIME_IMAGE", "value": image},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "livenessProbe": {**_probe("/healthz"), "initialDelaySeconds": 10, "periodSeconds": 20},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": 5},
        "resources": {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": 3, "failureThreshold": 3}
