"""Kubeflow's training operator, whose PyTorchJobs may be taken over once it no longer runs them.

Only looks. Its webhook matters as well: where it stays behind, nobody can create a PyTorchJob.
"""

from collections.abc import Mapping
from typing import Any

from midflight.errors import Refused
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.paths import EVERYWHERE, path
from midflight.kubernetes.install import inspection
from midflight.kubernetes.resources import foreign

_PROGRAMS = ("training-operator", "pytorch-operator")
_SCHEME = "--enable-scheme="  # the kinds that it runs; all of them where it is never said
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"

Object = Mapping[str, Any]


def check_stopped(connection: Connection) -> None:
    """Raises Refused, with what to do, where Kubeflow's operator still looks after PyTorchJobs."""
    where = path("Deployment", EVERYWHERE, api="apps/v1")
    for each in connection.ask("GET", where, what="list deployments")["items"]:
        if runs_pytorchjobs(each):
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            raise Refused(
                f"{name} in {namespace} still runs PyTorchJobs, and two operators would fight over "
                f"them; stop it first: `kubectl scale -n {namespace} deployment {name} "
                "--replicas=0`"
            )
    for each in connection.ask("GET", _WEBHOOKS, what="list webhooks")["items"]:
        if _concerns_pytorchjobs(each):
            name = each["metadata"]["name"]
            raise Refused(
                f"the webhook {name} would refuse every PyTorchJob, since nobody answers it once "
                f"its operator is gone; `kubectl delete validatingwebhookconfiguration {name}`"
            )


def runs_pytorchjobs(deployment: Object) -> bool:
    replicas = deployment["spec"].get("replicas", 1)
    left = (deployment.get("status") or {}).get("replicas") or 0
    if not replicas and not left:
        return False
    return any(map(_is_theirs, deployment["spec"]["template"]["spec"]["containers"]))


def _is_theirs(container: Object) -> bool:
    program = str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    schemes = [word.removeprefix(_SCHEME) for word in words if word.startswith(_SCHEME)]
    return program in _PROGRAMS and (not schemes or "pytorchjob" in schemes)


def _concerns_pytorchjobs(webhooks: Object) -> bool:
    rules = [rule for each in webhooks.get("webhooks") or () for rule in each.get("rules") or ()]
    return any(
        names.PYTORCH_GROUP in rule.get("apiGroups", ())
        and "pytorchjobs" in rule.get("resources", ())
        for rule in rules
    )


def left_alone(connection: Connection) -> str:
    """What becomes of jobs that it had started; "" where there are none."""
    found = [
        each
        for each in inspection.items(connection, names.PYTORCHJOB, EVERYWHERE)
        if foreign.is_foreign(each) and foreign.phase(each) not in foreign.ENDED
    ]
    if not found:
        return ""
    some = ", ".join(
        f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in found[:3]
    )
    more = ", ..." if len(found) > 3 else ""
    return (
        f"{len(found)} PyTorchJobs that Kubeflow's operator had started are left as they are "
        f"({some}{more}): their pods keep training, but nobody restarts or removes them; to run "
        "one here, delete it and create it again"
    )
