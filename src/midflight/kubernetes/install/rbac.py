"""What the operator may do on a cluster, and what the people who use it may.

Decides every verb on every resource, as narrow as the work allows: Secrets are written and never
read (but for one of the operator's own), nothing outside the operator's scope is seen, no verb or
resource is a wildcard. What the operator comes to do beyond this has to be added here. Who makes a
Role must hold whatever it grants: hence verbs on ConfigMaps that only launchers use.
"""

from collections.abc import Sequence
from typing import Any

from midflight.kubernetes import names

RBAC = "rbac.authorization.k8s.io"
RBAC_V1 = f"{RBAC}/v1"
OPERATOR = "midflight-operator"
LEASE = OPERATOR  # who holds it leads
KEY_SECRET = f"{OPERATOR}-key"  # the tokens of jobs are derived from it
EDIT, VIEW = "midflight-edit", "midflight-view"
TRAINING_CRD = f"trainingjobs.{names.GROUP}"
PYTORCH_CRD = f"pytorchjobs.{names.PYTORCH_GROUP}"

_KINDS = {
    names.GROUP: ("trainingjobs", "scaleouts", "scaleins"),
    names.PYTORCH_GROUP: ("pytorchjobs",),
}
_SCALABLE = {names.GROUP: ("trainingjobs",), names.PYTORCH_GROUP: ("pytorchjobs",)}
_READ = ("get", "list", "watch")
# What is there is not changed, and goes with the job that owns it; one has to see whose it is.
_MAKE = ("create", "get")

Rule = dict[str, list[str]]
Object = dict[str, Any]


def rule(group: str, resources: Sequence[str], verbs: Sequence[str], *only: str) -> Rule:
    made = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**made, "resourceNames": list(only)} if only else made


def job_rules() -> list[Rule]:
    """For the namespaces whose jobs the operator runs."""
    rules: list[Rule] = []
    for group, kinds in _KINDS.items():
        # delete: a finished job whose time to live is over, and scale objects beyond the newest
        rules.append(rule(group, kinds, (*_READ, "patch", "delete")))
        rules.append(rule(group, _sub(kinds, "status"), ("update",)))
        rules.append(rule(group, _sub(kinds, "finalizers"), ("update",)))  # to be an owner
    return [
        *rules,
        rule("", ("pods",), (*_READ, "create", "delete", "patch")),
        rule("", ("pods/log",), ("get",)),  # of those that failed, before they are replaced
        # get, update and watch are what a launcher's Role grants on the job's state
        rule("", ("configmaps",), ("create", "get", "patch", "update", "watch")),
        rule("", ("secrets", "events"), ("create",)),
        rule("", ("services", "serviceaccounts"), _MAKE),
        rule(RBAC, ("roles", "rolebindings"), _MAKE),
        rule("networking.k8s.io", ("networkpolicies",), _MAKE),
        rule("policy", ("poddisruptionbudgets",), (*_MAKE, "patch")),  # minReplicas may change
        # whether there is such a kind or not
        rule(names.SCHEDULING_GROUP, ("podgroups",), _MAKE),
        rule(names.VOLCANO_GROUP, ("podgroups",), _MAKE),
    ]


def cluster_rules() -> list[Rule]:
    """What has no namespace: whether the kinds are there, and PyTorchJobs ours or Kubeflow's."""
    crd = "customresourcedefinitions"
    return [rule("apiextensions.k8s.io", (crd,), ("get",), TRAINING_CRD, PYTORCH_CRD)]


def node_rules() -> list[Rule]:
    """To learn soon that a node is lost. Who runs one namespace waits for what its pods say."""
    return [rule("", ("nodes",), ("list", "watch"))]


def own_rules() -> list[Rule]:
    """For the operator's own namespace."""
    return [
        rule("coordination.k8s.io", ("leases",), ("create",)),
        rule("coordination.k8s.io", ("leases",), ("get", "update"), LEASE),
        rule("", ("secrets",), ("create",)),
        rule("", ("secrets",), ("get",), KEY_SECRET),
    ]


def role(name: str, namespace: str, rules: list[Rule]) -> Object:
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": RBAC_V1, "kind": kind, "metadata": _meta(name, namespace), "rules": rules}


def binding(name: str, namespace: str, account: tuple[str, str]) -> Object:
    """Of the role of the same name, to the ServiceAccount that is given as (namespace, name)."""
    kind = "Role" if namespace else "ClusterRole"
    return {
        "apiVersion": RBAC_V1,
        "kind": f"{kind}Binding",
        "metadata": _meta(name, namespace),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}],
    }


def roles(namespace: str, scope: str) -> list[Object]:
    """All of the operator's: `scope` is the one namespace whose jobs it runs, "" for all of them.

    What has no namespace is named after the operator's, so that operators of different namespaces
    do not share it.
    """
    account = (namespace, OPERATOR)
    wide = cluster_name(namespace, scope)
    everywhere = cluster_rules() if scope else [*job_rules(), *cluster_rules(), *node_rules()]
    placed = [(wide, "", everywhere), (OPERATOR, namespace, own_rules())]
    if scope:
        placed.append((f"{OPERATOR}-jobs", scope, job_rules()))
    made: list[Object] = []
    for name, where, rules in placed:
        made += [role(name, where, rules), binding(name, where, account)]
    return made


def cluster_name(namespace: str, scope: str) -> str:
    return f"{OPERATOR}-{namespace}" if scope else OPERATOR


def for_users() -> list[Object]:
    """Aggregated into the cluster's own `view`, `edit` and `admin`: nobody has to be bound anew."""
    view: list[Rule] = []
    edit: list[Rule] = []
    for group, kinds in _KINDS.items():
        scales = _sub(_SCALABLE[group], "scale")
        view.append(rule(group, kinds, _READ))
        view.append(rule(group, [*_sub(kinds, "status"), *scales], ("get",)))
        edit.append(
            rule(group, kinds, (*_READ, "create", "delete", "deletecollection", "patch", "update"))
        )
        edit.append(rule(group, scales, ("get", "patch", "update")))
    return [
        _aggregated(VIEW, view, ("view", "edit", "admin")),
        _aggregated(EDIT, edit, ("edit", "admin")),
    ]


def _aggregated(name: str, rules: list[Rule], into: Sequence[str]) -> Object:
    made = role(name, "", rules)
    made["metadata"]["labels"] = {f"{RBAC}/aggregate-to-{one}": "true" for one in into}
    return made


def _sub(kinds: Sequence[str], part: str) -> list[str]:
    return [f"{kind}/{part}" for kind in kinds]


def _meta(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}
