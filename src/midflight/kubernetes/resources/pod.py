"""What a pod says of its instance: all that anybody here needs to know of one, and nothing else.

The informer keeps these of thousands of pods instead of whole objects. One line says why a pod
waits, one how it ended. A container that a signal killed has 128 plus the signal as its code; here,
as everywhere in the controller, that is the negative number of the signal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midflight.kubernetes import names
from midflight.kubernetes.resources.status import seconds_of

# Of the pod itself, not of its program: it was taken away.
_TAKEN = (
    "Evicted",
    "Preempting",
    "Preempted",
    "NodeLost",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
)
_REFUSED = ("UnexpectedAdmissionError", "NodeAffinity", "OutOfcpu", "OutOfmemory", "OutOfpods")
_LONGEST_LINE = 160  # characters: a job's status has one for each instance
_QUIET = ("ContainerCreating", "PodInitializing")
_PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    uid: str
    owner: str  # uid of the job
    job: str
    role: str
    attempt: int
    phase: str  # Pending | Running | Succeeded | Failed | Unknown
    node: str = ""
    ip: str = ""
    host_ip: str = ""
    ends_at: float | None = None  # it is being deleted, and has until then
    waits_for: str = ""  # why it does not run yet; "" if there is nothing to say
    code: int | None = None  # of its program, once that has ended
    tried: int | None = None  # the code of its last try, where its program is started again
    end: str = ""  # how it ended, in words
    taken: bool = False  # away from its program, which is not to blame
    told: bool = False  # to end, before its program did: how that ended means nothing
    message: str = ""  # what its program left as its last word: the end of its log, if it failed
    template: str = ""  # mark of the template that it was made of
    disruption: str = ""  # why somebody has it deleted, where the cluster says so
    failed_container: str = ""  # the first that ended badly, if the pod failed
    without_code: bool = False  # its code could not be fetched, so that its program never began

    @property
    def over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def unusable(self) -> bool:
        """Its image cannot run Midflight, as the script around its command has said, or its
        code is nowhere."""
        if self.without_code:
            return self.code == names.NO_SUCH_COMMIT
        return self.code == names.UNUSABLE and self.last_line.startswith(names.UNUSABLE_IMAGE)

    @property
    def last_line(self) -> str:
        """The line that says most, as a rule: that of an exception."""
        lines = [line.strip() for line in self.message.splitlines() if line.strip()]
        return lines[-1][:_LONGEST_LINE] if lines else ""


def read_pod(pod: Mapping[str, Any]) -> Pod:
    meta, status = pod["metadata"], pod.get("status") or {}
    labels = meta.get("labels") or {}
    deleted = meta.get("deletionTimestamp")
    told = _without_sidecars(pod)
    ended = _terminated(told, "state") or _terminated(told, "lastState")
    phase = status.get("phase") or "Pending"
    code, end, taken = (
        _end(status, ended) if phase in ("Succeeded", "Failed") else (None, "", False)
    )
    return Pod(
        meta["name"],
        meta["namespace"],
        meta["uid"],
        _owner(meta),
        labels.get(names.JOB, ""),
        labels.get(names.ROLE, ""),
        _number(labels.get(names.ATTEMPT)),
        phase,
        (pod.get("spec") or {}).get("nodeName") or "",
        status.get("podIP") or "",
        status.get("hostIP") or "",
        seconds_of(deleted) if deleted else None,
        waiting(status) if phase == "Pending" else "",
        code,
        ended.get("exitCode") if ended else None,
        end,
        taken,
        _told(meta, ended),
        str(ended.get("message") or "") if ended else "",
        (meta.get("annotations") or {}).get(names.TEMPLATE) or "",
        _disruption(status),
        _failed_container(told) if phase == "Failed" else "",
        _without_code(status),
    )


def sidecars(pod: Mapping[str, Any]) -> frozenset[str]:
    """Containers that begin like those that prepare, and then run beside the others."""
    spec = pod.get("spec") or {}
    return frozenset(
        str(each.get("name"))
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )


def _without_sidecars(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """A sidecar is ended with the pod: how it ended says nothing of the program."""
    status, beside = pod.get("status") or {}, sidecars(pod)
    if not beside:
        return status
    states = status.get("initContainerStatuses") or ()
    kept = [each for each in states if each.get("name") not in beside]
    return {**status, "initContainerStatuses": kept}


def _failed_container(status: Mapping[str, Any]) -> str:
    for each in _containers(status):
        if ((each.get("state") or {}).get("terminated") or {}).get("exitCode"):
            return str(each.get("name") or "")
    return ""


def _without_code(status: Mapping[str, Any]) -> bool:
    """A pod's own code; the pod that finds out the commit has no container before its main one."""
    for each in status.get("initContainerStatuses") or ():
        if each.get("name") == names.CODE_CONTAINER:
            return bool(((each.get("state") or {}).get("terminated") or {}).get("exitCode"))
    return False


def _disruption(status: Mapping[str, Any]) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("status") == "True":
            return str(each.get("message") or each.get("reason") or "").strip()
    return ""


def _told(meta: Mapping[str, Any], ended: Mapping[str, Any] | None) -> bool:
    """Times are whole seconds; within the same one it was told first, as far as anybody knows."""
    if not meta.get("deletionTimestamp"):
        return False
    finished = (ended or {}).get("finishedAt")
    asked = seconds_of(meta["deletionTimestamp"]) - (meta.get("deletionGracePeriodSeconds") or 0)
    return not finished or seconds_of(finished) >= asked


def node_answers(node: Mapping[str, Any]) -> bool:
    """Whether its kubelet is heard of: what runs on one that is not may be gone, or not."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    return False


def waiting(status: Mapping[str, Any]) -> str:
    """Why a pod that is pending is so."""
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "not scheduled yet")
    for each in _containers(status):
        found = (each.get("state") or {}).get("waiting") or {}
        reason, message = found.get("reason") or "", found.get("message") or ""
        if reason in _PULLING:
            hint = "check its name, its registry and --image-pull-secret"
            return f"its image {each.get('image')} cannot be pulled ({reason}); {hint}"
        if reason and reason not in _QUIET:
            return f"{reason}: {message}" if message else str(reason)
    return ""


def _end(status: Mapping[str, Any], ended: Mapping[str, Any] | None) -> tuple[int, str, bool]:
    reason = status.get("reason") or ""
    if reason in _TAKEN + _REFUSED:
        message = str(status.get("message") or "its pod was removed").strip()
        return 1, f"{reason}: {message}", True
    if status.get("phase") == "Succeeded":
        return 0, "", False
    if ended is None:
        return 1, reason or "its pod failed", False
    raw = int(ended.get("exitCode") or 0)
    code = 128 - raw if raw > 128 and raw < 160 else raw or 1
    if ended.get("reason") == "OOMKilled":
        return -9, "was killed: it used more memory than its limit (OOMKilled)", False
    return code, "", False


def _terminated(status: Mapping[str, Any], when: str) -> Mapping[str, Any] | None:
    """How the first container ended that ended badly, else the first that ended.

    `when`: state, or lastState of containers that were started again.
    """
    found = [(each.get(when) or {}).get("terminated") for each in _containers(status)]
    ended = [each for each in found if each]
    bad = [each for each in ended if each.get("exitCode")]
    mains = [(each.get(when) or {}).get("terminated") for each in _mains(status)]
    own = [each for each in mains if each]
    return next(iter([*bad, *own, *ended]), None)


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *_mains(status)]


def _mains(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(status.get("containerStatuses") or ())


def _owner(meta: Mapping[str, Any]) -> str:
    for each in meta.get("ownerReferences") or ():
        if each.get("controller"):
            return str(each.get("uid"))
    return ""


def _number(text: object) -> int:
    return int(str(text)) if str(text).isdecimal() else 0
