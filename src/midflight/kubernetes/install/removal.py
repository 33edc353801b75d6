"""Taking an operator away: what is installed goes in an order in which nothing is orphaned.

Jobs are somebody's work. They go only when that was said, while the operator still runs, so that it
can clean up after them itself; its finalizer is taken off those that are left if it does not. Where
jobs are kept, so are the kinds, the namespace and the operator's key: the next operator goes on.
"""

from collections.abc import Callable, Iterator
from typing import Any

from midflight.errors import NotFound, TimedOut
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, selector
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.api.paths import EVERYWHERE, of, path, word
from midflight.kubernetes.install import apply, inspection, manifests, rbac
from midflight.kubernetes.install.apply import Done
from midflight.kubernetes.install.rbac import RBAC_V1
from midflight.kubernetes.resources.labels import is_ours

Object = dict[str, Any]
# kind and API, in the order in which they go; those of the namespace first
_PARTS = (
    ("Deployment", "apps/v1"),
    ("Service", "v1"),
    ("PodDisruptionBudget", "policy/v1"),
    ("PodDisruptionBudget", "policy/v1beta1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
    ("RoleBinding", RBAC_V1),
    ("Role", RBAC_V1),
    ("ServiceAccount", "v1"),
)
_WIDE_PARTS = (("ClusterRoleBinding", RBAC_V1), ("ClusterRole", RBAC_V1))


def prune(connection: Connection, namespace: str, scope: str, keep: list[Object]) -> Iterator[Done]:
    """Remove what an earlier installation in that namespace has left and this one lacks."""
    kept = {(one["kind"], one["metadata"].get("namespace"), _name(one)) for one in keep}
    for one in parts(connection, namespace, scope):
        if (one["kind"], one["metadata"].get("namespace"), _name(one)) in kept:
            continue
        if done := apply.delete(connection, one):
            yield done


def parts(connection: Connection, namespace: str, scope: str) -> list[Object]:
    """What belongs to the installation of that namespace, but for the namespace itself."""
    places = list(dict.fromkeys(one for one in (namespace, scope) if one))
    wanted = [(*part, where) for part in _PARTS for where in places]
    wanted += [(*part, EVERYWHERE) for part in _WIDE_PARTS]
    made: dict[str, Object] = {}
    for kind, api, where in wanted:
        for one in _labelled(connection, kind, api, where, namespace):
            made.setdefault(f"{one['metadata'].get('namespace')} {word(one)}", one)
    return list(made.values())


def _labelled(
    connection: Connection, kind: str, api: str, where: str, namespace: str
) -> list[Object]:
    query = {"labelSelector": selector({manifests.INSTALLED: namespace})}
    try:
        answer = connection.ask("GET", path(kind, where, api=api), query, what=f"list {kind}s")
    except NoSuchKind:
        return []  # another version of this API is the one that is served
    return [{"apiVersion": api, "kind": kind, **one} for one in answer["items"]]


def delete_jobs(
    connection: Connection, scope: str, seconds: float, tell: Callable[[str], None]
) -> Iterator[Done]:
    """`seconds`: for the operator to clean up after them; 0 if none is there to do so."""
    going = inspection.jobs(connection, scope)
    for job in going:
        if done := apply.delete(connection, job):
            yield done

    def left() -> str:
        count = sum(connection.find_object(job) is not None for job in going)
        return f"{count} of {len(going)} jobs are being deleted" if count else ""

    try:
        apply.until(left, seconds, tell)
    except TimedOut:
        for job in going:
            _release(connection, job)
    for kind in (names.SCALEOUT, names.SCALEIN):
        for one in inspection.items(connection, kind, scope or EVERYWHERE):
            if done := apply.delete(connection, one):
                yield done
            _release(connection, one)


def _release(connection: Connection, obj: Object) -> None:
    """Take our own finalizer off; what the object owns follows it by the cluster's collector."""
    now = connection.find_object(obj)
    if now is None:
        return
    others = [one for one in now["metadata"].get("finalizers") or [] if one != names.FINALIZER]
    meta = {"finalizers": others, "resourceVersion": now["metadata"]["resourceVersion"]}
    try:
        connection.patch(of(obj, name=True), {"metadata": meta}, f"release {word(obj)}")
    except NotFound:
        return


def remove(
    connection: Connection, namespace: str, scope: str, keep_jobs: bool, last: bool
) -> Iterator[Done]:
    """`last`: no other installation needs the kinds."""
    yield from prune(connection, namespace, scope, [])
    if keep_jobs:
        return
    for one in _own(namespace):
        if done := apply.delete(connection, one):
            yield done
    if last:
        yield from _ours(connection, manifests.kinds())
    space = _bare("v1", "Namespace", namespace)
    if not scope:
        yield from _ours(connection, [space])
    if (now := connection.find_object(space)) is not None and not is_ours(now):
        connection.apply(space, apply.MANAGER)  # takes our mark off, and nothing else


def _ours(connection: Connection, manifests: list[Object]) -> Iterator[Done]:
    """Those that carry our label; another's of the same name stays."""
    for manifest in manifests:
        now = connection.find_object(manifest)
        if now is None or not is_ours(now) or "deletionTimestamp" in now["metadata"]:
            continue
        if done := apply.delete(connection, manifest):
            yield done


def _own(namespace: str) -> list[Object]:
    """What the operator has made for itself while it ran."""
    return [
        _bare("coordination.k8s.io/v1", "Lease", rbac.LEASE, namespace),
        _bare("v1", "Secret", rbac.KEY_SECRET, namespace),
    ]


def _bare(api: str, kind: str, name: str, namespace: str = "") -> Object:
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api, "kind": kind, "metadata": meta}


def _name(one: Object) -> str:
    return str(one["metadata"]["name"])
