"""A job's instances come to be, and those that wait are given a place.

Nothing of a job starts before enough of it fits: the chief with `least` workers, or all of a job
of fixed size. After that each worker is placed as soon as there is room for it. Where another
scheduler places, everything starts at once, and waits there.
"""

from midflight.controller import roster
from midflight.controller.draft import Draft
from midflight.controller.placement import Place
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Instance, Job, NodeStage, Phase, Role, Stage

ELSEWHERE = Place("", ())  # not known before it runs


def create(draft: Draft, key: str) -> None:
    """All instances that the spec asks for, none of them placed."""
    spec = draft.jobs[key].spec
    role, gpus = (Role.LAUNCHER, 0) if spec.kind is Kind.ETJOB else (Role.MASTER, spec.gpus)
    chief = Instance(roster.chief_name(spec), role, 0, gpus, draft.now)
    count = spec.workers if spec.kind is Kind.ETJOB else spec.workers - 1
    draft.add_instances(key, [chief, *(new_worker(spec, i, draft.now) for i in range(count))])


def new_worker(spec: Spec, index: int, now: float) -> Instance:
    return Instance(roster.worker_name(spec, index), Role.WORKER, index, spec.gpus, now)


def add_workers(draft: Draft, key: str, count: int) -> tuple[str, ...]:
    """Some more, with the numbers after the highest one; none of them placed."""
    job = draft.jobs[key]
    taken = [i.index for i in job.instances.values() if i.name != roster.chief_name(job.spec)]
    first = max(taken, default=-1) + 1
    new = [new_worker(job.spec, index, draft.now) for index in range(first, first + count)]
    draft.add_instances(key, new)
    return tuple(instance.name for instance in new)


def place(draft: Draft, key: str) -> None:
    """Start whatever of the job waits and fits."""
    waiting = _due(draft, key)
    if not waiting or _must_wait(draft, key):
        return
    if draft.before.placed_elsewhere:
        for instance in waiting:
            _start(draft, key, instance, ELSEWHERE)
        return
    waiting = [instance for instance in waiting if not _back_in_place(draft, key, instance)]
    job = draft.jobs[key]
    together = _together(job, waiting)
    if together and not _start_together(draft, key, together):
        return
    started = {instance.name for instance in together}
    for instance in waiting:
        if instance.name not in started:
            _start_one(draft, key, instance)


def _due(draft: Draft, key: str) -> list[Instance]:
    """Those that wait for a place, and no longer for their pause to be over."""
    found = []
    for instance in roster.in_order(draft.jobs[key]):
        if instance.stage is Stage.PENDING and instance.retry_at <= draft.now:
            found.append(draft.set_instance(key, instance.name, retry_at=0.0))
    return found


def _must_wait(draft: Draft, key: str) -> bool:
    """All of it starts anew, and some of the old is still there."""
    job = draft.jobs[key]
    anew = job.phase is Phase.PENDING or not roster.is_elastic(job.spec)
    return anew and any(i.stage is Stage.STOPPING for i in job.instances.values())


def _back_in_place(draft: Draft, key: str, instance: Instance) -> bool:
    """One that was started again before keeps its node, if that still takes anything."""
    if not instance.node:
        return False
    node = draft.nodes.get(instance.node)
    if node is None or node.stage is not NodeStage.READY:
        draft.set_instance(key, instance.name, node="", devices=())
        return False
    _start(draft, key, instance, Place(instance.node, instance.devices))
    return True


def _together(job: Job, waiting: list[Instance]) -> list[Instance]:
    """Which of those that wait can only start with each other."""
    if not roster.is_elastic(job.spec):
        return waiting
    if any(roster.holds(i) and not i.leaving for i in job.instances.values()):
        return []
    chief, workers = roster.chief_name(job.spec), [i for i in waiting if i.role is Role.WORKER]
    least = job.spec.least - (0 if job.spec.kind is Kind.ETJOB else 1)
    return [i for i in waiting if i.name == chief] + workers[:least]


def _start_together(draft: Draft, key: str, instances: list[Instance]) -> bool:
    labels = draft.jobs[key].spec.selectors
    room = draft.room.copy()
    places: list[Place] = []
    for instance in instances:
        if (found := room.choose(instance, labels)) is None:
            reason = room.why_not(instance, labels) + _how_many(instances, len(places))
            for other in draft.jobs[key].instances.values():
                if other.stage is Stage.PENDING and not other.retry_at:
                    _wait(draft, key, other, reason)
            return False
        room.take(found)
        places.append(found)
    for instance, chosen in zip(instances, places, strict=True):
        draft.room.take(chosen)
        _start(draft, key, instance, chosen)
    return True


def _how_many(instances: list[Instance], fit: int) -> str:
    fitting = sum(i.role is not Role.LAUNCHER for i in instances[:fit])
    workers = sum(i.role is not Role.LAUNCHER for i in instances)
    return f" for all; {fitting} of {workers} workers would fit" if fitting else ""


def _start_one(draft: Draft, key: str, instance: Instance) -> None:
    labels = draft.jobs[key].spec.selectors
    if (found := draft.room.choose(instance, labels)) is None:
        _wait(draft, key, instance, draft.room.why_not(instance, labels))
        return
    draft.room.take(found)
    _start(draft, key, instance, found)


def _wait(draft: Draft, key: str, instance: Instance, reason: str) -> None:
    if instance.reason != reason:
        draft.set_instance(key, instance.name, reason=reason)
        draft.warn(key, f"instance/{instance.name}", "Pending", reason)


def _start(draft: Draft, key: str, instance: Instance, place: Place) -> None:
    draft.set_instance(
        key,
        instance.name,
        stage=Stage.STARTING,
        reason="",
        node=place.node,
        devices=place.devices,
        attempt=instance.attempt + 1,
        pid=0,
        started_at=None,
        ended_at=None,
        retry_at=0.0,
    )
    if place is ELSEWHERE:
        return
    devices = f", devices {','.join(map(str, place.devices))}" if place.devices else ""
    text = f"placed on {place.node}{devices}"
    draft.record(key, f"instance/{instance.name}", "Scheduled", text)
