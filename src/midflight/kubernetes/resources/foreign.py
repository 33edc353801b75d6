"""Jobs that our operator does not run: what their status and the labels of their pods say.

Kubeflow's operator may run PyTorchJobs, et-operator may have run a TrainingJob before ours came,
and an object that makes no sense is refused in its status only. Pods of others have other labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from midflight.controller.state import Job, Phase
from midflight.kubernetes import names
from midflight.kubernetes.resources.status import seconds_of

Object = Mapping[str, Any]
_PHASES = {
    "Running": Phase.RUNNING,
    "Restarting": Phase.RUNNING,
    "Scaling": Phase.SCALING,
    "Succeeded": Phase.SUCCEEDED,
    "Failed": Phase.FAILED,
}
ENDED = (Phase.SUCCEEDED, Phase.FAILED)
KUBEFLOW_JOB, KUBEFLOW_ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type"
ET_JOB, ET_ROLE = "training-job-name", "training-job-role"
# kind: the labels for the job's name and the pod's role, where our own are missing
LABELS = {names.PYTORCHJOB: (KUBEFLOW_JOB, KUBEFLOW_ROLE), names.TRAININGJOB: (ET_JOB, ET_ROLE)}


def is_foreign(obj: Object) -> bool:
    """Somebody has written its status, and it was not our controller."""
    found = obj.get("status") or {}
    return bool(found) and "midflight" not in found


def phase(obj: Object) -> Phase | None:
    """None if nothing is said."""
    found = obj.get("status") or {}
    true = [each["type"] for each in found.get("conditions") or () if each["status"] == "True"]
    words = [word for word in (found.get("phase"), *reversed(true)) if word in _PHASES]
    return _PHASES[words[0]] if words else None


def reason(obj: Object) -> str:
    """Why it has failed."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == "Failed" and each["status"] == "True":
            return str(each.get("message") or each.get("reason") or "")
    return ""


def as_stated(job: Job, obj: Object) -> Job:
    """A job that our controller knows nothing of, as far as others tell."""
    found = obj.get("status") or {}
    return replace(
        job,
        phase=phase(obj) or job.phase,
        reason=reason(obj),
        started_at=_seconds(found.get("startTime")),
        ended_at=_seconds(found.get("completionTime")),
    )


def role_of(pod: Object) -> str:
    labels = pod["metadata"].get("labels") or {}
    for name in (names.ROLE, ET_ROLE, KUBEFLOW_ROLE):
        if labels.get(name):
            return str(labels[name]).lower()
    return ""


def _seconds(text: object) -> float | None:
    return seconds_of(str(text)) if text else None
