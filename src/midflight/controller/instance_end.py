"""An instance has ended; what that means for it, and for its job.

Who was told to end waits for its next place, or is taken off the list. Who ended by itself is
started again as the policies say: a chief that was killed goes on where it was, a chief that failed
decides the job. Pauses between starts grow, and start over for one that has run for a while.
"""

import enum
import signal

from midflight import backoff
from midflight.controller import roster
from midflight.controller.draft import Draft
from midflight.controller.instance_stop import wait_anew
from midflight.controller.job_end import finish, restart_all, restarts_allowed
from midflight.controller.state import Instance, Job, NodeStage, Phase, Stage

AFTER_SUCCESS = 5.0  # a worker that is done most likely means that its job is about to be
HEALTHY = 600.0  # seconds of running after which former failures are forgotten
CHIEF_RESTARTS = 20  # in a row, after it was killed
START_ATTEMPTS = 5  # in a row, of an instance of a job that has never run


class Fate(enum.Enum):
    DONE = "done"
    FAILED = "failed"  # with a code
    KILLED = "killed"  # by a signal
    LOST = "lost"  # with its node
    UNSTARTED = "unstarted"  # its process could not be made
    UNUSABLE = "unusable"  # and never can be


def fate_of(code: int) -> Fate:
    if code == 0:
        return Fate.DONE
    return Fate.KILLED if code < 0 else Fate.FAILED


def described(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    known = {member.value: member.name for member in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"


def ended(
    draft: Draft, key: str, instance: Instance, fate: Fate, code: int | None, reason: str
) -> None:
    """It is no longer on its node."""
    told = instance.stage is Stage.STOPPING
    well = told or fate is Fate.DONE
    instance = draft.set_instance(
        key,
        instance.name,
        stage=Stage.COMPLETED if well else Stage.ERROR,
        reason=(instance.reason or reason) if told else reason,
        exit_code=code,
        ended_at=draft.now,
        stop_by=None,
    )
    draft.touch([key])
    job = draft.jobs[key]
    if instance.leaving:
        draft.drop_instance(key, instance.name)
    elif job.deleting or job.finished:
        pass
    elif _is_the_end(job, instance, fate):
        finish(draft, key, Phase.SUCCEEDED, "")
    elif told:
        wait_anew(draft, key, instance.name, instance.reason)
    else:
        _by_itself(draft, key, instance, fate)


def _is_the_end(job: Job, instance: Instance, fate: Fate) -> bool:
    """Even one that was told to move: it had come to its end before it heard of it."""
    return fate is Fate.DONE and instance.name == roster.chief_name(job.spec)


def _by_itself(draft: Draft, key: str, instance: Instance, fate: Fate) -> None:
    if fate is not Fate.DONE:
        word = "Lost" if fate is Fate.LOST else "Failed"
        draft.warn(key, f"instance/{instance.name}", word, instance.reason)
    job = draft.jobs[key]
    if _cannot_start(job, instance, fate):
        finish(draft, key, Phase.FAILED, f"{instance.name} {instance.reason}")
    elif not roster.is_elastic(job.spec):
        _of_fixed_size(draft, key, instance, fate)
    elif instance.name == roster.chief_name(job.spec):
        _chief(draft, key, instance, fate)
    elif replaces(job.spec.worker_restart_policy, fate, instance.exit_code):
        again(draft, key, instance, fate)


def _cannot_start(job: Job, instance: Instance, fate: Fate) -> bool:
    if fate is Fate.UNUSABLE:  # a worker that comes later leaves the others alone
        return job.started_at is None or instance.name == roster.chief_name(job.spec)
    attempts = instance.failures + 1
    return fate is Fate.UNSTARTED and job.started_at is None and attempts >= START_ATTEMPTS


def _of_fixed_size(draft: Draft, key: str, instance: Instance, fate: Fate) -> None:
    job = draft.jobs[key]
    if fate is Fate.LOST:
        restart_all(draft, key, f"{instance.name} was {instance.reason}")
    elif fate is Fate.DONE:
        return
    elif _is_counted(job, instance):
        again(draft, key, instance, fate)
    elif job.restarts < job.spec.retry:
        draft.set_job(key, restarts=job.restarts + 1, restarted_at=draft.now)
        again(draft, key, instance, fate)
    else:
        finish(draft, key, Phase.FAILED, f"{instance.name} {instance.reason}")


def _is_counted(job: Job, instance: Instance) -> bool:
    """It is a part of the crash that was counted last: who ran then breaks with the others."""
    if job.restarted_at is None or instance.started_at is None:
        return False
    return instance.started_at <= job.restarted_at


def _chief(draft: Draft, key: str, instance: Instance, fate: Fate) -> None:
    """The workers of a job that has run train on meanwhile, so it may take a while to come back."""
    job = draft.jobs[key]
    comes_back = fate is Fate.UNSTARTED and job.started_at is not None
    if fate in (Fate.KILLED, Fate.LOST) or comes_back:
        if _failures(draft, instance) <= CHIEF_RESTARTS:
            again(draft, key, instance, fate)
        else:
            text = f"{instance.name} {instance.reason}, and was started {CHIEF_RESTARTS} times"
            finish(draft, key, Phase.FAILED, f"{text} again before")
    elif job.restarts < restarts_allowed(job.spec):
        draft.set_job(key, restarts=job.restarts + 1)
        restart_all(draft, key, f"{instance.name} {instance.reason}")
    else:
        finish(draft, key, Phase.FAILED, f"{instance.name} {instance.reason}")


def replaces(policy: str, fate: Fate, code: int | None) -> bool:
    """Whether a worker that ended by itself is started again."""
    match policy:
        case "Never":
            return False
        case "OnFailure":
            return fate is not Fate.DONE
        case "ExitCode":  # 128 and 255 too
            by_its_place = fate in (Fate.KILLED, Fate.LOST, Fate.UNSTARTED)
            return by_its_place or (code is not None and 128 <= code <= 255)
        case _:
            return True


def again(draft: Draft, key: str, instance: Instance, fate: Fate) -> None:
    """Start it again: after a pause and in its place, or elsewhere at once if its node is lost."""
    reason = instance.reason
    failures = _failures(draft, instance)
    wait_anew(draft, key, instance.name, reason)
    if fate is not Fate.LOST:
        pause = backoff.restart_pause(failures)
        pause = max(pause, AFTER_SUCCESS) if fate is Fate.DONE else pause
        node = draft.nodes.get(instance.node)
        keeps = node is not None and node.stage is NodeStage.READY
        draft.set_instance(
            key,
            instance.name,
            retry_at=draft.now + pause,
            node=instance.node if keeps else "",
            devices=instance.devices if keeps else (),
        )
    draft.set_instance(key, instance.name, failures=failures)
    draft.record(key, f"instance/{instance.name}", "Restarting", reason)


def _failures(draft: Draft, instance: Instance) -> int:
    """Bad ends in a row, this one included."""
    ran = draft.now - instance.started_at if instance.started_at is not None else 0.0
    return 1 if ran >= HEALTHY else instance.failures + 1
