"""The gang: pods of a job that a scheduler is to place together, or none of them.

Who wants one says so in the job's templates, with two labels: the job's own group, and how many of
its pods are enough to begin with; or in a PyTorchJob's `schedulingPolicy`. Older schedulers read
the labels. The newer ones, and Volcano, want a PodGroup that says the same, and a label (for
Volcano an annotation) that names it on each pod. Both are the operator's to add, and always
together: a pod that names a PodGroup which nobody makes is never placed. Templates that do not
agree, or that name a PodGroup themselves, are left as they are.
"""

import re
from typing import Any, NamedTuple

from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Role
from midflight.kubernetes import names
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import chief_role, kind_of, part, template_of, thaw

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")  # the field has 32 bits


class Gang(NamedTuple):
    name: str
    least: int  # pods, the launcher among them
    volcano: bool  # which has a PodGroup of its own
    policy: Object  # a PyTorchJob's schedulingPolicy


def gang_of(obj: Object, spec: Spec) -> Gang | None:
    """None if the job has none, or one that is not ours to make."""
    chief, worker = (_labels(obj, role) for role in (chief_role(obj), Role.WORKER))
    if any(chief.get(key) != worker.get(key) for key in (names.POD_GROUP, names.POD_GROUP_MIN)):
        return None
    if names.POD_GROUP_MEMBER in {**chief, **worker}:
        return None
    name, least = names.pod_group(spec.kind.value, spec.name), chief.get(names.POD_GROUP_MIN, "")
    policy = _policy(obj)
    if names.POD_GROUP not in chief and policy.get("minAvailable"):
        least = str(policy["minAvailable"])
    elif chief.get(names.POD_GROUP) != name:
        return None
    if not _NUMBER.fullmatch(least):
        return None
    return Gang(name, int(least), _is_volcano(obj), policy)


def labels(obj: Object, spec: Spec) -> dict[str, str]:
    """What each pod of a gang carries beside the labels of its template."""
    gang = gang_of(obj, spec)
    return {} if gang is None or gang.volcano else {names.POD_GROUP_MEMBER: gang.name}


def annotations(obj: Object, spec: Spec) -> dict[str, str]:
    gang = gang_of(obj, spec)
    return {names.VOLCANO_MEMBER: gang.name} if gang is not None and gang.volcano else {}


def pod_group(gang: Gang) -> tuple[str, dict[str, Any]]:
    """Its API and its spec. How long a scheduler waits for the others is left to it."""
    if not gang.volcano:
        return names.SCHEDULING_API, {"minMember": gang.least}
    said = {
        "queue": gang.policy.get("queue"),
        "priorityClassName": gang.policy.get("priorityClass"),
        "minResources": gang.policy.get("minResources"),
    }
    given = {key: thaw(value) for key, value in said.items() if value}
    return names.VOLCANO_API, {"minMember": gang.least, **given}


def _policy(obj: Object) -> Object:
    if kind_of(obj) is not Kind.PYTORCHJOB:
        return {}
    return part(obj, "spec.runPolicy.schedulingPolicy").value


def _is_volcano(obj: Object) -> bool:
    specs = [part(template_of(obj, r).value, "spec").value for r in (chief_role(obj), Role.WORKER)]
    return all(spec.get("schedulerName") == names.VOLCANO for spec in specs)


def _labels(obj: Object, role: Role) -> dict[str, str]:
    return dict(part(template_of(obj, role).value, "metadata.labels").value)
