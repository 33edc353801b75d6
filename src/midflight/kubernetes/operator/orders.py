"""What the pods of a job tell the controller, and which pods are to be created and deleted.

Both follow from the job's state and from what is observed now, so it does not matter how often they
are asked or what was missed: an operator that was away for an hour finds the same as one that saw
every change. `news` comes first, then the controller decides, then `orders` says what is missing.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midflight.controller import events
from midflight.controller.state import ENDED, ON_NODE, Code, Instance, Job, Phase, Role, Stage
from midflight.kubernetes import names
from midflight.kubernetes.resources.pod import Pod

AT_ONCE = 1  # seconds of grace; 0 would take the pod off the list while it may still run
BY_ITSELF = 6.0  # seconds after the end of a job for its pods to end as well
LATE = 5.0  # seconds after a pod was to be gone, at which its node is taken for lost
GONE = "lost with its pod, which was deleted"
SIGTERM = -15
CODE_ROLE = "code"


@dataclass(frozen=True)
class CreatePod:
    instance: str


@dataclass(frozen=True)
class CreateCodePod:
    """The one that finds out which commit the job's code is at."""


@dataclass(frozen=True)
class DeletePod:
    name: str
    grace: int  # 0: take it off the list whatever its node says


Order = CreatePod | CreateCodePod | DeletePod
Pods = Mapping[str, Pod]  # of one job, by name


@dataclass(frozen=True)
class Observed:
    """What one pass sees of a job, beside its saved state."""

    now: float
    pods: Pods = field(default_factory=dict)
    silent: Container[str] = ()  # nodes whose kubelets do not answer
    delays: Mapping[str, str] = field(default_factory=dict)  # pods not created, and why
    scalers: Sequence[Mapping[str, Any]] = ()  # ScaleOut and ScaleIn objects
    told: Sequence[events.Event] = ()  # by the executor, since the last pass
    deleted: bool = False  # the object has a deletion timestamp
    holder: str = ""  # what keeps the job from running; "" if nothing does
    wrote: int | None = None  # the replicas that we wrote into the spec since the last pass


def news(job: Job, observed: Observed) -> list[events.Event]:
    found: list[events.Event] = []
    for instance in job.instances.values():
        if instance.stage in ON_NODE:
            pod = _own(instance, observed.pods)
            found.extend(_about(job.key, instance, pod, observed.now))
    return found


def _own(instance: Instance, pods: Pods) -> Pod | None:
    """The pod of this attempt; one of an earlier attempt is in the way, and no more."""
    pod = pods.get(instance.name)
    return pod if pod is not None and pod.attempt == instance.attempt else None


def _about(key: str, instance: Instance, pod: Pod | None, now: float) -> Iterator[events.Event]:
    who = (now, key, instance.name, instance.attempt)
    if pod is None or (pod.over and pod.told and not pod.taken):
        if instance.stage is Stage.STOPPING:
            yield events.InstanceEnded(*who, SIGTERM)
        elif instance.stage is Stage.RUNNING or pod is not None:
            why = f": {pod.disruption}" if pod is not None and pod.disruption else ""
            yield events.InstanceLost(*who, GONE + why)
        return
    if pod.phase == "Pending":
        if instance.stage is Stage.STARTING and pod.waits_for != instance.reason:
            yield events.InstanceDelayed(*who, pod.waits_for)
        return
    if instance.stage is Stage.STARTING:
        yield events.InstanceStarted(*who, 0, pod.node)
    if pod.taken:
        yield events.InstanceLost(*who, pod.end)
    elif pod.over:
        yield events.InstanceEnded(*who, pod.code or 0, pod.end)


def orders(job: Job, observed: Observed) -> list[Order]:
    """What is to be created and deleted, whatever commands the controller gave on its way here."""
    pods, now = observed.pods, observed.now
    found: list[Order] = []
    for instance in job.instances.values():
        pod = pods.get(instance.name)
        if pod is None:
            if instance.stage is Stage.STARTING:
                found.append(CreatePod(instance.name))
        elif (grace := _grace(job, instance, pod, now)) is not None:
            found.append(DeletePod(pod.name, grace))
    for pod in pods.values():
        needed = job.code is Code.FETCHING if pod.role == CODE_ROLE else pod.name in job.instances
        if not needed and pod.ends_at is None:
            found.append(DeletePod(pod.name, AT_ONCE))
    if job.code is Code.FETCHING and names.code_pod(job.spec.name) not in pods:
        found.append(CreateCodePod())
    late = [pod for pod in pods.values() if _is_late(pod, now, observed.silent)]
    return [*found, *(DeletePod(pod.name, 0) for pod in late)]


def begins_anew(job: Job, pods: Pods, orders: list[Order]) -> bool:
    """Whether a launcher is made that must not go on with what a former one was at."""
    chiefs = [i for i in job.instances.values() if i.role is not Role.WORKER and i.attempt > 1]
    made = any(CreatePod(i.name) in orders for i in chiefs)
    trains = any(pod.phase == "Running" for pod in pods.values())
    return made and job.phase is Phase.PENDING and not trains


def _grace(job: Job, instance: Instance, pod: Pod, now: float) -> int | None:
    """With how much notice the pod goes; None if it stays, or is going already."""
    if pod.ends_at is not None:
        return None
    if instance.stage is Stage.STARTING and pod.attempt != instance.attempt:
        return AT_ONCE
    if instance.stage is Stage.STOPPING and now >= _stops_at(job, instance):
        return max(AT_ONCE, round((instance.stop_by or now) - now))
    if instance.stage in ENDED and job.finished and job.spec.clean_policy == "All":
        return AT_ONCE
    return None


def _stops_at(job: Job, instance: Instance) -> float:
    """When its pod is deleted. At the end of a job pods end by themselves, and keep their logs."""
    if not job.finished or job.deleting:
        return 0.0
    return (job.ended_at or 0.0) + BY_ITSELF


def _is_late(pod: Pod, now: float, silent: Container[str]) -> bool:
    """It was to go, and nobody answers for it: what may still run there is fenced off."""
    if pod.ends_at is None:
        return False
    return pod.node in silent or now >= pod.ends_at + LATE


def next_look(job: Job, pods: Pods) -> float | None:
    """When there is something to do here although nothing was heard."""
    late = [pod.ends_at + LATE for pod in pods.values() if pod.ends_at is not None]
    stopping = [i for i in job.instances.values() if i.stage is Stage.STOPPING and i.name in pods]
    stops = [_stops_at(job, i) for i in stopping if pods[i.name].ends_at is None]
    return min([*late, *(at for at in stops if at)], default=None)


def launcher_ip(job: Job, pods: Pods) -> str:
    """Where the job's coordinator is; "" while nobody knows."""
    for instance in job.instances.values():
        pod = _own(instance, pods)
        if instance.role is not Role.WORKER and pod is not None and pod.phase == "Running":
            return pod.ip
    return ""
