"""The table of resources, and their paths on the API server.

A kind that is not listed is in the core API, is namespaced, and has the usual plural: lower case,
with an s.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from midflight.kubernetes import names

EVERYWHERE = "*"
# kind: API, for those that are asked for without an object at hand
APIS = {
    names.TRAININGJOB: names.API,
    names.SCALEOUT: names.API,
    names.SCALEIN: names.API,
    names.PYTORCHJOB: names.PYTORCH_API,
    names.PODGROUP: names.SCHEDULING_API,
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "SelfSubjectAccessReview": "authorization.k8s.io/v1",
    "SelfSubjectReview": "authentication.k8s.io/v1",
}
_PLURALS = {"PriorityClass": "priorityclasses", "NetworkPolicy": "networkpolicies"}
_OF_CLUSTER = (
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "Node",
    "PriorityClass",
    "SelfSubjectAccessReview",
    "SelfSubjectReview",
)


def is_namespaced(kind: str) -> bool:
    return kind not in _OF_CLUSTER


def plural(kind: str) -> str:
    return _PLURALS.get(kind, f"{kind.lower()}s")


def path(kind: str, namespace: str, name: str = "", sub: str = "", api: str = "") -> str:
    """`namespace` is not looked at for what belongs to no namespace; `*` is all of them."""
    api = api or APIS.get(kind, "v1")
    parts = ["/apis" if "/" in api else "/api", api]
    if is_namespaced(kind) and namespace != EVERYWHERE:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural(kind))
    parts += [quote(part, safe="") for part in (name, sub) if part]
    return "/".join(parts)


def of(manifest: Mapping[str, Any], name: bool = False) -> str:
    """Where this object is created, or with `name` where it is afterwards."""
    meta = manifest["metadata"]
    own = meta["name"] if name else ""
    namespace = meta.get("namespace") or EVERYWHERE
    return path(manifest["kind"], namespace, own, api=manifest["apiVersion"])


def word(manifest: Mapping[str, Any]) -> str:
    """As kubectl calls it: `configmap/demo-config`, `trainingjob.kai.alibabacloud.com/demo`."""
    group, slash, _ = manifest["apiVersion"].partition("/")
    kind = manifest["kind"].lower()
    return (
        f"{kind}.{group}/{manifest['metadata']['name']}"
        if slash
        else (f"{kind}/{manifest['metadata']['name']}")
    )
