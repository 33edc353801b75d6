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
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import chief_role, kind_of, part, template_of, thaw

_LEAST = "minAvailable"
# What a PodGroup calls the fields of a schedulingPolicy.
_OF_COSCHEDULING = {
    "minResources": "minResources",
    "scheduleTimeoutSeconds": "scheduleTimeoutSeconds",
}
_OF_VOLCANO = {
    "queue": "queue",
    "priorityClass": "priorityClassName",
    "minResources": "minResources",
}
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")  # the field has 32 bits


class Gang(NamedTuple):
    name: str
    least: int  # pods, the launcher among them
    volcano: bool  # which has a PodGroup of its own
    policy: Object  # a PyTorchJob's schedulingPolicy; of a TrainingJob, as much as it can say


def gang_of(obj: Object, spec: Spec) -> Gang | None:
    """None if the job has none, or one that is not ours to make."""
    chief, worker = (_labels(obj, role) for role in (chief_role(obj), Role.WORKER))
    if any(chief.get(key) != worker.get(key) for key in (names.POD_GROUP, names.POD_GROUP_MIN)):
        return None
    if names.POD_GROUP_MEMBER in {**chief, **worker}:
        return None
    name, least = names.pod_group(spec.kind.value, spec.name), chief.get(names.POD_GROUP_MIN, "")
    policy = _policy(obj)
    if names.POD_GROUP not in chief and policy.get(_LEAST):
        least = str(policy[_LEAST])
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
    """Its API and its spec."""
    known = _OF_VOLCANO if gang.volcano else _OF_COSCHEDULING
    given = {name: thaw(gang.policy[key]) for key, name in known.items() if gang.policy.get(key)}
    api = names.VOLCANO_API if gang.volcano else names.SCHEDULING_API
    return api, {"minMember": gang.least, **given}


def fields_without_effect(obj: Object) -> list[str]:
    """Of a `schedulingPolicy` with minAvailable, those that the scheduler's PodGroup lacks."""
    known = _OF_VOLCANO if _is_volcano(obj) else _OF_COSCHEDULING
    return [key for key, value in _policy(obj).items() if value and key not in (*known, _LEAST)]


def _policy(obj: Object) -> Object:
    if kind_of(obj) is Kind.PYTORCHJOB:
        return part(obj, "spec.runPolicy.schedulingPolicy").value
    queue = fields.pairs(part(obj, "metadata").value, "annotations", "metadata").get(names.QUEUE)
    return {"queue": queue} if queue else {}


def _is_volcano(obj: Object) -> bool:
    specs = [part(template_of(obj, r).value, "spec").value for r in (chief_role(obj), Role.WORKER)]
    return all(spec.get("schedulerName") == names.VOLCANO for spec in specs)


def _labels(obj: Object, role: Role) -> dict[str, str]:
    return dict(part(template_of(obj, role).value, "metadata.labels").value)
