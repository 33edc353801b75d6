"""What is done to one job on a cluster, or to its pods: shown, deleted, killed, read, joined."""

import time
from collections.abc import Iterator, Mapping, Sequence

from midflight.errors import NotFound, Refused
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.names import JOB_KINDS, JOB_TYPES
from midflight.kubernetes.resources import foreign, summary
from midflight.kubernetes.resources.status import seconds_of
from midflight.kubernetes.verbs import job_list, lookup, pod_status, requests, views
from midflight.kubernetes.verbs.lookup import Found
from midflight.protocol.views import JobView, PrunedView

FINISHED = ("SUCCEEDED", "FAILED", "MAX_WAIT_TIME_EXCEEDED")


def view(connection: Connection, found: Found) -> JobView:
    pods = lookup.pods_of(connection, found)
    if found.job is None:
        return views.broken_view(found.obj, found.wrong, pods, time.time())
    return views.view(found.obj, found.job, pods, time.time())


def delete(
    connection: Connection, kind: str, namespace: str, name: str, uid: str, user: str
) -> None:
    """It is gone once all that belongs to it is. `user`: who asks."""
    connection.delete(
        kind, namespace, name, propagationPolicy="Background", preconditions={"uid": uid}
    )
    job = {"kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": uid}}
    requests.note(connection, job, requests.deleted(kind, name), user)


def prune(connection: Connection, namespace: str, since: float, user: str) -> list[PrunedView]:
    """Finished jobs, and no others, that ended at least `since` seconds ago; the first first."""
    found = job_list.jobs(connection, namespace, list(JOB_KINDS))
    ended = [(job["endTime"], job) for job in found if job["endTime"] is not None]
    gone: list[PrunedView] = []
    for end, job in sorted(ended, key=lambda each: each[0]):
        age = time.time() - seconds_of(end)
        if job["status"] not in FINISHED or age < since:
            continue
        name, where, kind = job["name"], job["namespace"], job["type"]
        try:
            delete(connection, JOB_KINDS[kind], where, name, job["uid"], user)
        except NotFound:
            continue  # somebody else was faster
        gone.append({"name": name, "namespace": where, "type": kind, "age": age})
    return gone


def kill(connection: Connection, namespace: str, name: str, instance: str, user: str) -> None:
    """Its pod is gone at once, without notice. `user`: who asks."""
    found = lookup.find(connection, namespace, name)
    pods = lookup.pods_of(connection, found)
    if instance not in (pod["metadata"]["name"] for pod in pods):
        raise NotFound(f"the job {name} has no pod {instance}")
    connection.delete("Pod", namespace, instance, gracePeriodSeconds=0)
    requests.note(connection, found.obj, requests.killed(instance), user)


def logs(
    connection: Connection, namespace: str, name: str, query: Mapping[str, str]
) -> Iterator[bytes]:
    from midflight.kubernetes.verbs import logs

    found = lookup.find(connection, namespace, name)

    def over() -> bool:
        obj = connection.find(found.kind, namespace, name)
        if obj is None or obj["metadata"]["uid"] != found.uid:
            return True
        return summary.phase_of(obj, JOB_TYPES[found.kind]) in FINISHED

    def pods() -> Sequence[Object]:
        """Who fetches the code is asked only by name."""
        return [
            pod
            for pod in lookup.pods_of(connection, found)
            if foreign.role_of(pod) != "code" or query.get("instance") == names.code_pod(name)
        ]

    chief = summary.chief_name(name, JOB_TYPES[found.kind])
    source = logs.Source(connection, namespace, name, chief, pods, over)
    return logs.read(source, logs.PodLogs.of(query))


def attach(
    connection: Connection, namespace: str, instance: str, container: str, command: Sequence[str]
) -> int:
    from midflight.kubernetes.api import exec_session

    pod = connection.find("Pod", namespace, instance)
    if pod is None:
        raise NotFound(f"instance {instance} has no pod now")
    chosen = pod_status.begun(pod, container)
    if chosen is None or pod_status.has_ended(pod):
        why = pod_status.reason(pod)
        raise Refused(
            f"instance {instance} is not running ({pod_status.status(pod)})"
            f"{f': {why}' if why else ''}"
        )
    return exec_session.attach(connection, namespace, instance, chosen, command)
