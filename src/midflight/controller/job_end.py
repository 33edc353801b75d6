"""A job comes to its end, starts anew as a whole, is held back, or is deleted.

The time of an end is set once. What the clean policy lets run on is not watched any more, but is
still listed, and goes with the job when that is deleted.
"""

from midflight.controller import roster
from midflight.controller.draft import Draft
from midflight.controller.instance_stop import kill, stop, wait_anew
from midflight.controller.operations import abandon, close_all
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import ENDED, ON_NODE, Job, Phase, Role, Stage
from midflight.deadlines import STOP_GRACE

DELETED = "Deleted"  # the last record of a job


def restarts_allowed(spec: Spec) -> int:
    """How often all of an elastic job is started anew after its chief failed."""
    if spec.kind is Kind.PYTORCHJOB:
        return spec.retry
    return spec.backoff_limit if spec.restart_policy == "OnFailure" else 0


def finish(draft: Draft, key: str, phase: Phase, reason: str) -> None:
    """The end of a job; `reason` says why it failed."""
    job = draft.jobs[key]
    close_all(draft, key, f"the job ended before that: {phase.value}")
    draft.set_job(key, phase=phase, reason=reason, ended_at=draft.now, started_at=_began(job))
    for instance in roster.in_order(draft.jobs[key]):
        if instance.stage is Stage.PENDING:
            bad = bool(instance.exit_code)
            stage = Stage.ERROR if bad else Stage.COMPLETED
            text = instance.reason if bad else "the job ended first"
            draft.set_instance(key, instance.name, stage=stage, reason=text, ended_at=draft.now)
        elif job.spec.clean_policy != "None":
            stop(draft, key, instance.name, STOP_GRACE, "the job ended")
    draft.touch([key])
    if phase is Phase.SUCCEEDED:
        draft.record(key, draft.about_job(key), "Succeeded", "the job succeeded")
    else:
        word = "Failed" if phase is Phase.FAILED else "MaxWaitTimeExceeded"
        draft.warn(key, draft.about_job(key), word, reason)


def _began(job: Job) -> float | None:
    """A command may be over before enough workers were up for the job to count as running."""
    chief = job.instances.get(roster.chief_name(job.spec))
    if job.started_at is not None or chief is None:
        return job.started_at
    return chief.started_at


def restart_all(draft: Draft, key: str, reason: str) -> None:
    """Stop all of it; once nothing is left it is placed as if it were new."""
    if draft.jobs[key].phase is Phase.PENDING and _all_wait(draft.jobs[key]):
        return
    abandon(draft, key, f"the job was restarted: {reason}")
    draft.set_job(key, phase=Phase.PENDING, reason=f"starting anew: {reason}")
    _send_all_back(draft, key, "the job restarts")
    draft.warn(key, draft.about_job(key), "Restarting", reason)


def hold(draft: Draft, key: str, holder: str) -> None:
    """Stop all of it, until it is released; then it is placed as if it were new."""
    job = draft.jobs[key]
    if job.held or job.finished or job.deleting:
        return
    abandon(draft, key, f"the job was suspended: {holder}")
    reason = f"suspended: {holder} holds it back"
    draft.set_job(key, held=holder, phase=Phase.PENDING, started_at=None, reason=reason)
    _send_all_back(draft, key, "the job was suspended")
    draft.record(key, draft.about_job(key), "Suspended", f"{holder} holds it back")


def release(draft: Draft, key: str) -> None:
    if draft.jobs[key].held:
        draft.set_job(key, held="", released_at=draft.now, reason="")
        draft.record(key, draft.about_job(key), "Resumed", "nothing holds it back any more")


def _send_all_back(draft: Draft, key: str, reason: str) -> None:
    """To wait for a place: at once, or when they have stopped."""
    _drop_surplus(draft, key)
    for instance in roster.in_order(draft.jobs[key]):
        if instance.stage in ON_NODE:
            stop(draft, key, instance.name, STOP_GRACE, reason)
        else:
            wait_anew(draft, key, instance.name, reason)
    draft.touch([key])


def _all_wait(job: Job) -> bool:
    """It is being restarted already."""
    return all(i.stage in (Stage.PENDING, Stage.STOPPING) for i in job.instances.values())


def _drop_surplus(draft: Draft, key: str) -> None:
    """Workers that ended for good, and whose number others have taken since."""
    job = draft.jobs[key]
    dead = [i for i in roster.counted(job) if i.stage in ENDED and i.role is Role.WORKER]
    surplus = len([i for i in roster.counted(job) if not i.leaving]) - job.wanted
    for instance in dead[: max(surplus, 0)]:
        draft.drop_instance(key, instance.name)


def delete(draft: Draft, key: str) -> None:
    """Stop all of it; asked for a second time, kill what is left."""
    job = draft.jobs[key]
    hurry = job.deleting
    close_all(draft, key, "the job was deleted")
    draft.set_job(key, deleting=True)
    if not hurry:
        draft.record(key, draft.about_job(key), "Deleting", "the job is being deleted")
    for instance in roster.on_node(draft.jobs[key]):
        if hurry:
            kill(draft, key, instance.name)
        else:
            stop(draft, key, instance.name, STOP_GRACE, "the job was deleted")
    draft.touch([key])


def remove_if_empty(draft: Draft, key: str) -> None:
    """Of a job that is being deleted."""
    if roster.on_node(draft.jobs[key]):
        return
    draft.record(key, draft.about_job(key), DELETED, "the job was deleted")
    draft.drop_job(key)
