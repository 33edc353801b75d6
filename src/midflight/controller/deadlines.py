"""Deadlines: when something happens to a job although nobody says anything.

Each one here is acted on by `reconcile.py` or what it calls as soon as it is over, so a deadline
never stays in the past. (`orders.next_look` says when an instance is late to end.) A limit of 0 is
none, as in Arena's flags; a job that is to be kept for 0 seconds goes at once.
"""

from collections.abc import Iterator

from midflight.controller import roster
from midflight.controller.state import Job, Operation, Progress, Stage


def deadlines_of(job: Job) -> Iterator[float]:
    if job.deleting or job.held:
        return
    if job.finished:
        if (at := gone_at(job)) is not None:
            yield at
        return
    yield from (at for at in (waited_at(job), ran_at(job)) if at is not None)
    for instance in job.instances.values():
        if instance.stage is Stage.PENDING and instance.retry_at:
            yield instance.retry_at
    yield from (operation.deadline for operation in _with_deadline(job))


def gone_at(job: Job) -> float | None:
    """When a finished job is deleted."""
    ttl = job.spec.ttl_after_finished
    return None if ttl is None or job.ended_at is None else job.ended_at + ttl


def waited_at(job: Job) -> float | None:
    """When a job has waited too long for its first run."""
    longest = job.spec.max_wait_time
    since = job.released_at or job.created_at
    return since + longest if longest and job.started_at is None else None


def ran_at(job: Job) -> float | None:
    """When a job has run too long."""
    longest = job.spec.running_timeout
    return job.started_at + longest if longest and job.started_at is not None else None


def _with_deadline(job: Job) -> list[Operation]:
    """The others wait for the training's answer, or for instances to end, which have their own."""
    limited = (Progress.QUEUED, Progress.PLACING)
    return [o for o in roster.open_operations(job) if o.progress in limited]
