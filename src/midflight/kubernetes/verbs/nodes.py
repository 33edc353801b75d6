"""What is asked of a cluster as a whole: its nodes, its volumes, how it is doing."""

from collections.abc import Iterable, Mapping
from typing import Any

from midflight.controller.views import NONE
from midflight.errors import Refused
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.api.paths import EVERYWHERE, path
from midflight.kubernetes.names import JOB_KINDS
from midflight.kubernetes.resources import devices
from midflight.kubernetes.verbs import job_list, pod_status, views
from midflight.protocol.views import NodeView, ServerView

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"  # those hold what they asked for


def nodes(connection: Connection) -> list[NodeView]:
    pods = connection.items("Pod", EVERYWHERE, fieldSelector=_ALIVE)
    return node_views(connection.items("Node", ""), pods)


def act(connection: Connection, node: str, action: str) -> NodeView:
    """cordon and return, as kubectl has them; the others are not for jobs to do."""
    if action not in ("cordon", "return"):
        raise Refused(f"`node {action}` is for simulated nodes: use kubectl on a cluster")
    body = {"spec": {"unschedulable": True if action == "cordon" else None}}
    connection.patch(path("Node", "", node), body, f"{action} node {node}")
    return next(each for each in nodes(connection) if each["name"] == node)


def claims(connection: Connection, namespace: str) -> list[Object]:
    """PersistentVolumeClaims that are there to be mounted."""
    found = connection.items("PersistentVolumeClaim", namespace)
    return [each for each in found if (each.get("status") or {}).get("phase") == "Bound"]


def status(connection: Connection) -> ServerView:
    jobs: dict[str, int] = {}
    for job in job_list.jobs(connection, connection.namespace, list(JOB_KINDS)):
        jobs[job["status"]] = jobs.get(job["status"], 0) + 1
    return {
        "version": f"Kubernetes {connection.version()}",
        "pid": 0,
        "startedAt": "",
        "home": connection.settings.server,
        "jobs": jobs,
        "nodes": len(connection.items("Node", "")),
    }


# --- views ---------------------------------------------------------------------------------------


_ROLE = "node-role.kubernetes.io/"
_OLD_ROLE = "kubernetes.io/role"
_NO_ROLE = "<none>"


def node_views(
    found: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
) -> list[NodeView]:
    """In the order of their names."""
    there: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        if pod_status.has_place(pod):
            there.setdefault(pod["spec"]["nodeName"], []).append(pod)
    by_name = sorted(found, key=lambda node: str(node["metadata"]["name"]))
    return [_view(node, there.get(node["metadata"]["name"], [])) for node in by_name]


def _view(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> NodeView:
    meta, here = node["metadata"], list(pods)
    own = [pod["metadata"] for pod in here if views.job_of(pod)]
    return {
        "name": meta["name"],
        "address": _address(node),
        "role": _role(meta.get("labels") or {}),
        "status": _status(node),
        "gpus": devices.slots((node.get("status") or {}).get("capacity") or {}, "capacity"),
        "allocatedGPUs": sum(pod_status.gpus(pod) for pod in here),
        "labels": dict(meta.get("labels") or {}),
        "virtual": False,
        "instances": sorted(
            f"{each['namespace']}/{each['labels'][names.JOB]}/{each['name']}" for each in own
        ),
    }


def _address(node: Mapping[str, Any]) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    found = {each["type"]: each["address"] for each in addresses}
    return str(found.get("InternalIP") or found.get("ExternalIP") or NONE)


def _role(labels: Mapping[str, str]) -> str:
    roles = [key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)]
    if old := labels.get(_OLD_ROLE):
        roles.append(old)
    return ",".join(sorted({role for role in roles if role})) or _NO_ROLE


def _status(node: Mapping[str, Any]) -> str:
    found = (node.get("status") or {}).get("conditions") or ()
    ready = {each["type"]: each["status"] for each in found}.get("Ready")
    word = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if node["spec"].get("unschedulable") else word
