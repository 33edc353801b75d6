"""The gang: pods of a job that a scheduler is to place together, or none of them.

Who wants one says so in the job's templates, with two labels: the job's own group, and how many of
its pods are enough to begin with. Older schedulers read these. The newer ones want a PodGroup that
says the same, and a label that names it on each pod. Both are the operator's to add, and always
together: a pod that names a PodGroup which nobody makes is never placed. Templates that do not
agree, or that name a PodGroup themselves, are left as they are.
"""

import re
from typing import NamedTuple

from midflight.controller.spec import Spec
from midflight.controller.state import Role
from midflight.kubernetes import names
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import chief_role, part, template_of

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")  # the field has 32 bits


class Gang(NamedTuple):
    name: str
    least: int  # pods, the launcher among them


def gang_of(obj: Object, spec: Spec) -> Gang | None:
    """None if the job has none, or one that is not ours to make."""
    chief, worker = (_labels(obj, role) for role in (chief_role(obj), Role.WORKER))
    if any(chief.get(key) != worker.get(key) for key in (names.POD_GROUP, names.POD_GROUP_MIN)):
        return None
    if names.POD_GROUP_MEMBER in {**chief, **worker}:
        return None
    name, least = names.pod_group(spec.kind.value, spec.name), chief.get(names.POD_GROUP_MIN, "")
    if chief.get(names.POD_GROUP) != name or not _NUMBER.fullmatch(least):
        return None
    return Gang(name, int(least))


def labels(obj: Object, spec: Spec) -> dict[str, str]:
    """What each pod of a gang carries beside the labels of its template."""
    gang = gang_of(obj, spec)
    return {} if gang is None else {names.POD_GROUP_MEMBER: gang.name}


def _labels(obj: Object, role: Role) -> dict[str, str]:
    return dict(part(template_of(obj, role).value, "metadata.labels").value)
