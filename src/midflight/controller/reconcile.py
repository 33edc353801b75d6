"""Whatever is due for a job now, whichever event made it so.

It looks at the state alone, so a job that was read from the journal goes on as if nothing had
happened. Jobs are settled oldest first, and those that wait for room only when some has come free.
"""

from midflight import durations
from midflight.controller import roster
from midflight.controller.deadlines import gone_at, ran_at, waited_at
from midflight.controller.draft import Draft
from midflight.controller.instance_start import create, place
from midflight.controller.job_end import delete, finish, remove_if_empty
from midflight.controller.operations import operate
from midflight.controller.state import Code, Job, Phase, Stage
from midflight.quantities import counted


def reconcile_all(draft: Draft) -> None:
    while draft.touched or draft.freed:
        if draft.freed:
            draft.freed = False
            draft.touch(key for key in draft.active if _waits_for_room(draft.jobs[key]))
        if oldest := draft.by_age(draft.touched):
            draft.touched.discard(oldest[0].key)
            settle(draft, oldest[0].key)
        else:
            draft.touched.clear()


def _waits_for_room(job: Job) -> bool:
    if job.finished or job.deleting or job.held:
        return False
    return any(i.stage is Stage.PENDING and not i.retry_at for i in job.instances.values())


def settle(draft: Draft, key: str) -> None:
    job = draft.jobs[key]
    if job.deleting:
        remove_if_empty(draft, key)
    elif job.finished:
        _delete_in_time(draft, job)
    elif job.held:
        operate(draft, key)  # what came for one may be leaving still
    elif not _end_in_time(draft, job) and job.code is not Code.FETCHING:
        if not job.instances:
            create(draft, key)
        operate(draft, key)
        place(draft, key)
        _name_phase(draft, key)


def _delete_in_time(draft: Draft, job: Job) -> None:
    at = gone_at(job)
    if at is not None and draft.now >= at:
        delete(draft, job.key)


def _end_in_time(draft: Draft, job: Job) -> bool:
    """Whether its time is over."""
    waited, ran = waited_at(job), ran_at(job)
    if waited is not None and draft.now >= waited:
        limit = durations.shown(job.spec.max_wait_time or 0.0)
        text = f"waited longer than {limit}" + (f": {job.reason}" if job.reason else "")
        finish(draft, job.key, Phase.MAX_WAIT_TIME_EXCEEDED, text)
        return True
    if ran is not None and draft.now >= ran:
        limit = durations.shown(job.spec.running_timeout or 0.0)
        finish(draft, job.key, Phase.FAILED, f"ran longer than {limit}")
        return True
    return False


def _name_phase(draft: Draft, key: str) -> None:
    job = draft.jobs[key]
    if job.phase is Phase.PENDING and _is_up(job):
        started = draft.now if job.started_at is None else job.started_at
        job = draft.set_job(key, phase=Phase.RUNNING, started_at=started)
        text = f"the job runs with {_running(job)} of {counted(job.wanted, 'worker')}"
        draft.record(key, draft.about_job(key), "Running", text)
        operate(draft, key)  # one may have waited for this
        place(draft, key)
    if job.phase is not Phase.PENDING:
        scales = bool(roster.open_operations(draft.jobs[key]))
        draft.set_job(key, phase=Phase.SCALING if scales else Phase.RUNNING)
    draft.set_job(key, reason=_reason(draft.jobs[key]))


def _running(job: Job) -> int:
    return sum(i.stage is Stage.RUNNING for i in roster.counted(job))


def _is_up(job: Job) -> bool:
    chief = job.instances[roster.chief_name(job.spec)]
    return chief.stage is Stage.RUNNING and _running(job) >= job.spec.least


def _reason(job: Job) -> str:
    """What is missing, if anything is."""
    waiting = [i for i in roster.in_order(job) if roster.waits(i)]
    if not waiting:
        return job.reason if job.phase is Phase.PENDING and _starts_anew(job) else ""
    first = waiting[0]
    if job.phase is Phase.PENDING:
        return first.reason
    running = f"{_running(job)} of {counted(job.wanted, 'worker')} run"
    return f"{running}; {first.name} waits: {first.reason}"


def _starts_anew(job: Job) -> bool:
    return any(i.stage is Stage.STOPPING for i in job.instances.values())
