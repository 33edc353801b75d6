"""What is installed on a cluster: which operators, of which version, who leads, which kinds.

Only looks. An operator is found by its label, so it does not matter whether `midflight operator
install`, kustomize or somebody by hand has put it there.
"""

from dataclasses import dataclass
from typing import Any

from midflight.errors import NotFound, Refused
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, selector
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.api.paths import EVERYWHERE, path
from midflight.kubernetes.install import apply, manifests, rbac
from midflight.kubernetes.install.rbac import OPERATOR
from midflight.kubernetes.resources import crds
from midflight.kubernetes.resources.labels import is_ours

_APPS, _LEASES = "apps/v1", "coordination.k8s.io/v1"
Object = dict[str, Any]


@dataclass(frozen=True)
class Operator:
    namespace: str
    scope: str  # the one namespace whose jobs it runs; "": all
    version: str
    image: str
    wanted: int
    ready: int
    current: bool  # all replicas are of the newest template
    leader: str  # "": nobody
    renewed: str  # when the leader last said so


@dataclass(frozen=True)
class Kind:
    name: str  # of the CustomResourceDefinition
    there: bool
    served: bool
    ours: bool


def operators(connection: Connection, namespace: str) -> list[Operator]:
    """Of the whole cluster, or of that namespace where one may not look further."""
    try:
        found = _deployments(connection, EVERYWHERE)
    except Refused:
        found = _deployments(connection, namespace)
    return [_operator(connection, one) for one in found]


def kinds(connection: Connection) -> list[Kind]:
    made = []
    for crd in crds.crds():
        found = connection.find_object(crd)
        made.append(
            Kind(
                name=crd["metadata"]["name"],
                there=found is not None,
                served=apply.established(found),
                ours=found is not None and is_ours(found),
            )
        )
    return made


def stands_back(connection: Connection) -> bool:
    """PyTorchJobs are somebody else's."""
    theirs = [one for one in kinds(connection) if one.name == rbac.PYTORCH_CRD]
    return any(one.there and not one.ours for one in theirs)


def not_ready(connection: Connection, namespace: str) -> str:
    """What the operator of that namespace still lacks, "" if nothing."""
    found = [one for one in _deployments(connection, namespace) if _name(one) == OPERATOR]
    if not found:
        return f"{namespace} has no Deployment {OPERATOR}"
    missing = lacking(found[0])
    why = _trouble(connection, namespace) if missing else ""
    return f"{missing} ({why})" if why else missing


def lacking(deployment: Object) -> str:
    """Which replicas are not there, or are still of an older template."""
    status, wanted = deployment.get("status") or {}, deployment["spec"]["replicas"]
    seen = (status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]
    ready = min(status.get(key) or 0 for key in ("updatedReplicas", "availableReplicas"))
    older = (status.get("replicas") or 0) - (status.get("updatedReplicas") or 0)
    if not seen or ready < wanted:
        return f"{ready if seen else 0} of {wanted} replicas of the operator are ready"
    return f"{older} of an older version are still there" if older > 0 else ""


def _trouble(connection: Connection, namespace: str) -> str:
    """Why a pod of the operator does not get on, in the cluster's own words."""
    labels = selector({manifests.NAME: OPERATOR})
    pods = connection.items("Pod", namespace, labelSelector=labels)
    for pod in pods:
        status = pod.get("status") or {}
        for container in status.get("containerStatuses") or []:
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating"):
                return f"{_name(pod)}: {waiting['reason']} {waiting.get('message', '')}".strip()
        for condition in status.get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{_name(pod)}: {condition.get('message') or condition.get('reason')}"
    return ""


def _deployments(connection: Connection, namespace: str) -> list[Object]:
    query = {"labelSelector": selector({manifests.NAME: OPERATOR})}
    where = path("Deployment", namespace, api=_APPS)
    found: list[Object] = connection.ask("GET", where, query, what="list deployments")["items"]
    return found


def _operator(connection: Connection, deployment: Object) -> Operator:
    meta, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status") or {}
    labels = meta.get("labels") or {}
    scope = labels.get(manifests.SCOPE, manifests.ALL)
    leader, renewed = _leader(connection, meta["namespace"])
    containers = spec["template"]["spec"]["containers"]
    return Operator(
        namespace=meta["namespace"],
        scope="" if scope == manifests.ALL else scope,
        version=labels.get(manifests.VERSION, ""),
        image=containers[0]["image"],
        wanted=spec["replicas"],
        ready=status.get("readyReplicas") or 0,
        current=(status.get("updatedReplicas") or 0) >= spec["replicas"],
        leader=leader,
        renewed=renewed,
    )


def _leader(connection: Connection, namespace: str) -> tuple[str, str]:
    where = path("Lease", namespace, rbac.LEASE, api=_LEASES)
    try:
        spec = connection.ask("GET", where, what="get the lease")["spec"]
    except (NotFound, Refused):
        return "", ""
    return spec.get("holderIdentity") or "", spec.get("renewTime") or ""


def jobs(connection: Connection, scope: str) -> list[Object]:
    """All that there are, whoever runs them; PyTorchJobs only where those are ours."""
    where = scope or EVERYWHERE
    kinds = [names.TRAININGJOB]
    if not stands_back(connection):
        kinds.append(names.PYTORCHJOB)
    return [one for kind in kinds for one in items(connection, kind, where)]


def items(connection: Connection, kind: str, where: str) -> list[Object]:
    try:
        found = connection.items(kind, where)
    except NoSuchKind:
        return []
    api = names.PYTORCH_API if kind == names.PYTORCHJOB else names.API
    return [{"apiVersion": api, "kind": kind, **one} for one in found]


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
