"""What a test of a running operator looks at: what was said, what has happened, who is who.

`history` is read from the API server's own record, so that nothing is missed between two looks.
"""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.running.jobs import SECONDS, Jobs

CRD = "CustomResourceDefinition"
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def uids(jobs: Jobs) -> dict[str, str]:
    """Of the pods, by name."""
    return {name: pod["metadata"]["uid"] for name, pod in jobs.pods().items()}


def attempt(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["midflight.dev/attempt"])


def wait_new_pod(jobs: Jobs, name: str, former: str, phase: str = "") -> Json:
    """One that has taken the place of the pod whose uid was `former`."""

    def wanted(pod: Json) -> bool:
        return pod["metadata"]["uid"] != former and phase in ("", pod["status"].get("phase"))

    return jobs.cluster.wait_for("Pod", jobs.namespace, name, wanted, SECONDS)


def fill_quota(jobs: Jobs) -> None:
    """No pod more, until the quota named full is deleted."""
    meta = {"name": "full", "namespace": jobs.namespace}
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    jobs.create({**kind, "metadata": meta, "spec": {"hard": {"pods": "0"}}})
    jobs.cluster.wait_for(
        "ResourceQuota", jobs.namespace, "full", lambda quota: quota.get("status", {}).get("hard")
    )


# --- Events ---------------------------------------------------------------------------------------


def said(jobs: Jobs, reason: str) -> list[str]:
    """The messages of all Events with that reason."""
    found = jobs.cluster.list("v1/Event", jobs.namespace)
    return [event["message"] for event in found if event["reason"] == reason]


def wait_said(jobs: Jobs, reason: str, words: str = "") -> None:
    jobs.wait_events(
        lambda found: any(e["reason"] == reason and words in e["message"] for e in found)
    )


# --- what has happened ----------------------------------------------------------------------------


def now(jobs: Jobs, kind: str = "Pod") -> str:
    """A point in time, for `history`."""
    listed = jobs.cluster.api.call("GET", jobs.cluster.path(kind, jobs.namespace))
    return str(listed["metadata"]["resourceVersion"])


def history(jobs: Jobs, since: str, kind: str = "Pod") -> list[tuple[str, Json]]:
    """All that became of objects of a kind since then: ADDED, MODIFIED or DELETED, and the object.

    What the API server remembers comes at once; it is listened to for a second.
    """
    path = jobs.cluster.path(kind, jobs.namespace)
    query = f"watch=true&resourceVersion={since}&timeoutSeconds=1"
    lines = jobs.cluster.api.stream(f"{path}?{query}", SECONDS)
    return [(each["type"], each["object"]) for each in map(json.loads, lines)]


# --- places ---------------------------------------------------------------------------------------


@contextmanager
def another_namespace(cluster: Cluster, folder: Path) -> Iterator[Jobs]:
    name = f"another-{uuid4().hex[:6]}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.wait_for("ServiceAccount", name, "default", bool)
    cluster.wait_for("ConfigMap", name, "kube-root-ca.crt", bool)
    folder.mkdir()
    made = Jobs(cluster, name, folder)
    yield made
    made.clear()
    cluster.clear(name)


@contextmanager
def slow_garbage_collection(cluster: Cluster, seconds: float = 2.0) -> Iterator[None]:
    """As on a large cluster: what is owned by what is gone stays for a while."""
    manager = cluster.plane._daemons["kube-controller-manager"].process
    waking = threading.Timer(seconds, manager.send_signal, (signal.SIGCONT,))
    manager.send_signal(signal.SIGSTOP)
    waking.start()
    try:
        yield
    finally:
        waking.join()


@contextmanager
def open_schema(cluster: Cluster, definition: str, nonsense: Json) -> Iterator[None]:
    """A definition that lets everything through, `nonsense` too, as et-operator's own would."""
    path = cluster.path(CRD, "", definition)
    before = cluster.api.call("GET", path)
    after = json.loads(json.dumps(before))
    after["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = _OPEN
    cluster.api.call("PUT", path, after)
    try:
        _await_verdict(cluster, nonsense, accepted=True)
        yield
    finally:
        latest = cluster.api.call("GET", path)
        cluster.api.call("PUT", path, {**latest, "spec": before["spec"]})
        _await_verdict(cluster, nonsense, accepted=False)


def _await_verdict(cluster: Cluster, obj: Json, accepted: bool) -> None:
    """The API server takes a changed schema up a moment later, and says nothing about it."""
    kind = f"{obj['apiVersion']}/{obj['kind']}"
    path = f"{cluster.path(kind, obj['metadata']['namespace'])}?dryRun=All"
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            cluster.api.call("POST", path, obj)
            verdict = True
        except ApiError as error:
            if error.status not in (409, 422):
                raise
            verdict = error.status == 409
        if verdict == accepted:
            return
        time.sleep(0.05)
    raise AssertionError(f"the schema of {kind} was not taken up")
