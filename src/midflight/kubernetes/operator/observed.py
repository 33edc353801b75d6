"""What the controller sees of a job's pods, and what else follows from looking at them.

A pod is an instance, and the one that finds out which commit the code is at is a pod as well. What
is to be created and deleted is for `controller/orders.py` to say.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midflight.controller import orders
from midflight.controller.commands import StartInstance
from midflight.controller.instance_end import described
from midflight.controller.orders import Condition, Sighting
from midflight.controller.state import Job, Phase, Role
from midflight.kubernetes.resources.pod import Pod

ENDS_ALONE = 6.0  # seconds after the end of a job, so that its pods keep their logs
GONE = "lost with its pod, which was deleted"
CODE_ROLE = "code"

Pods = Mapping[str, Pod]  # of one job, by name


@dataclass(frozen=True)
class Observed:
    """What one pass sees of a job, beside its saved state."""

    now: float
    pods: Pods = field(default_factory=dict)
    silent: Container[str] = ()  # nodes whose kubelets do not answer
    delays: Mapping[str, str] = field(default_factory=dict)  # pods not created, and why
    scalers: Sequence[Mapping[str, Any]] = ()  # ScaleOut and ScaleIn objects
    restarted: bool = False  # another operator has led before
    deleted: bool = False  # the object has a deletion timestamp
    holder: str = ""  # what keeps the job from running; "" if nothing does
    wrote: int | None = None  # the replicas that we wrote into the spec since the last pass

    @property
    def instances(self) -> orders.Observed:
        """As the controller wants to know it."""
        codes = (pod.name for pod in self.pods.values() if pod.role == CODE_ROLE)
        return orders.Observed(
            now=self.now,
            instances={n: sighting(pod, self.silent) for n, pod in self.pods.items()},
            fetching=next(codes, ""),
            ends_alone=ENDS_ALONE,
            gone=GONE,
        )


def sighting(pod: Pod, silent: Container[str] = ()) -> Sighting:
    condition, reason, lost = Condition.RUNNING, pod.end, pod.taken
    if pod.phase == "Pending":
        condition, reason = Condition.WAITING, pod.waits_for
    elif pod.over:
        condition = Condition.OVER
        if pod.told and not pod.taken:
            lost, reason = True, GONE + (f": {pod.disruption}" if pod.disruption else "")
        elif pod.without_code:
            reason = f"its code could not be fetched: {pod.last_line or described(pod.code or 1)}"
        elif pod.unusable:
            reason = pod.last_line
        elif pod.code and not pod.end and pod.last_line:
            reason = f"{described(pod.code)}: {pod.last_line}"
    return Sighting(
        pod.attempt,
        condition,
        pod.node,
        reason=reason,
        code=(pod.code or 0) if pod.over and not pod.without_code else None,
        lost=lost,
        unusable=pod.unusable,
        ends_at=pod.ends_at,
        silent=pod.node in silent,
    )


def begins_anew(job: Job, pods: Pods, orders: Iterable[object]) -> bool:
    """Whether a launcher is made that must not go on with what a former one was at."""
    made = {order.instance for order in orders if isinstance(order, StartInstance)}
    chiefs = [i for i in job.instances.values() if i.role is not Role.WORKER and i.attempt > 1]
    trains = any(pod.phase == "Running" for pod in pods.values())
    anew = any(chief.name in made for chief in chiefs)
    return anew and job.phase is Phase.PENDING and not trains


def launcher_ip(job: Job, pods: Pods) -> str:
    """Where the job's coordinator is; "" while nobody knows."""
    for instance in job.instances.values():
        pod = pods.get(instance.name)
        own = pod is not None and pod.attempt == instance.attempt
        if instance.role is not Role.WORKER and pod is not None and own and pod.phase == "Running":
            return pod.ip
    return ""
