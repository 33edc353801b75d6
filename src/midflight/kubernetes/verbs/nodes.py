"""What is asked of a cluster as a whole: its nodes, its volumes, how it is doing."""

from midflight.errors import Refused
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.api.paths import EVERYWHERE, JOB_KINDS, path
from midflight.kubernetes.verbs import job_list, node_views
from midflight.protocol.views import NodeView, ServerView

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"  # those hold what they asked for


def nodes(connection: Connection) -> list[NodeView]:
    pods = connection.items("Pod", EVERYWHERE, fieldSelector=_ALIVE)
    return node_views.nodes(connection.items("Node", ""), pods)


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
