"""Remarks on a job's object: what is not as its author may think, for Events.

Privileges that its templates add, fields that have no effect, and pods that were made of another
template than the object has now. None of it keeps the job from running.
"""

from collections.abc import Iterable

from midflight.controller.state import Role
from midflight.kubernetes.pods import gang, security
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.job_spec import launcher_of_fixed_size
from midflight.kubernetes.resources.pod import Pod
from midflight.kubernetes.resources.templates import part, template_mark

_WITHOUT_EFFECT = {
    "spec.elasticPolicy.metrics": "scale with an autoscaler that uses the scale subresource",
    "spec.elasticPolicy.standalone": "the pods of a job are one world",
}
_WITHOUT_GANG = (
    "spec.runPolicy.schedulingPolicy has no effect without minAvailable, the number of pods "
    "that are to start together"
)
_OTHER_SCHEDULER = (
    "of the PodGroups, only Volcano's have queue and priorityClass (if all templates name the "
    "scheduler volcano), and only the others have scheduleTimeoutSeconds"
)
_FIXED = (
    "spec.elasticPolicy does not make the job elastic: {launcher} counts its nodes when it starts, "
    "so every pod runs it and their number is fixed. Start the script with torchrun, or without a "
    "launcher, for a job whose size can change"
)


def remarks(obj: Object, pods: Iterable[Pod]) -> list[tuple[str, str]]:
    """Reason and text of each; `obj` is one that `spec_of` can read."""
    return [
        *(("PrivilegesAdded", text) for text in security.notes(obj)),
        *(("FieldIgnored", text) for text in _ignored(obj)),
        *(("TemplateChanged", text) for text in _mixed(obj, pods)),
    ]


def _ignored(obj: Object) -> list[str]:
    found = []
    for path, instead in _WITHOUT_EFFECT.items():
        holder, _, key = path.rpartition(".")
        if part(obj, holder).value.get(key):
            found.append(f"{path} has no effect: {instead}")
    if launcher := launcher_of_fixed_size(obj):
        found.append(_FIXED.format(launcher=launcher))
    policy = part(obj, "spec.runPolicy").value.get("schedulingPolicy")
    if policy and not policy.get("minAvailable"):
        return [*found, _WITHOUT_GANG]
    paths = [f"spec.runPolicy.schedulingPolicy.{key}" for key in gang.fields_without_effect(obj)]
    return [*found, *(f"{path} has no effect: {_OTHER_SCHEDULER}" for path in paths)]


def _mixed(obj: Object, pods: Iterable[Pod]) -> list[str]:
    former = [pod.name for pod in pods if pod.template and not _is_current(obj, pod)]
    if not former:
        return []
    some = ", ".join(sorted(former)[:3]) + (", ..." if len(former) > 3 else "")
    return [
        f"the pod template was changed, and {len(former)} pods run the former one ({some}); pods "
        "that come later get the new one. To have one, delete the others one by one, or the job"
    ]


def _is_current(obj: Object, pod: Pod) -> bool:
    roles = {role.value: role for role in Role}
    return pod.role not in roles or pod.template == template_mark(obj, roles[pod.role])
