"""Views of nodes: which GPUs there are, and which of them are taken.

What every pod holds counts, ours or not: GPUs that somebody else has are not free. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from midflight.controller.views import NONE
from midflight.kubernetes import names
from midflight.kubernetes.verbs import pod_status, views
from midflight.protocol.views import NodeView

Object = Mapping[str, Any]
_ROLE = "node-role.kubernetes.io/"
_OLD_ROLE = "kubernetes.io/role"
_NO_ROLE = "<none>"


def nodes(found: Iterable[Object], pods: Iterable[Object]) -> list[NodeView]:
    """In the order of their names."""
    there: dict[str, list[Object]] = {}
    for pod in pods:
        if pod_status.has_place(pod):
            there.setdefault(pod["spec"]["nodeName"], []).append(pod)
    by_name = sorted(found, key=lambda node: str(node["metadata"]["name"]))
    return [view(node, there.get(node["metadata"]["name"], [])) for node in by_name]


def view(node: Object, pods: Iterable[Object]) -> NodeView:
    meta, here = node["metadata"], list(pods)
    own = [pod["metadata"] for pod in here if views.job_of(pod)]
    return {
        "name": meta["name"],
        "address": _address(node),
        "role": _role(meta.get("labels") or {}),
        "status": _status(node),
        "gpus": _total(node),
        "allocatedGPUs": sum(pod_status.gpus(pod) for pod in here),
        "labels": dict(meta.get("labels") or {}),
        "virtual": False,
        "instances": sorted(
            f"{each['namespace']}/{each['labels'][names.JOB]}/{each['name']}" for each in own
        ),
    }


def _address(node: Object) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    found = {each["type"]: each["address"] for each in addresses}
    return str(found.get("InternalIP") or found.get("ExternalIP") or NONE)


def _role(labels: Mapping[str, str]) -> str:
    roles = [key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)]
    if old := labels.get(_OLD_ROLE):
        roles.append(old)
    return ",".join(sorted({role for role in roles if role})) or _NO_ROLE


def _status(node: Object) -> str:
    found = (node.get("status") or {}).get("conditions") or ()
    ready = {each["type"]: each["status"] for each in found}.get("Ready")
    word = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if node["spec"].get("unschedulable") else word


def _total(node: Object) -> int:
    capacity = (node.get("status") or {}).get("capacity") or {}
    counts = (str(capacity.get(name, "")) for name in pod_status.GPUS)
    return sum(int(count) for count in counts if count.isdecimal())
