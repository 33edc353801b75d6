"""A scale operation from its first turn to its end, one at a time for each job.

A scaleout starts instances and asks the training at the same moment; a scalein asks first and stops
instances afterwards. `orders.py` asks, as long as an operation is ASKED. Nothing is counted as done
before the training has said so, and once it was asked its answer alone decides: it has a deadline,
and a switch that has begun is not taken back.
"""

from dataclasses import replace

from midflight.controller import roster
from midflight.controller.draft import Draft
from midflight.controller.instance_start import add_workers
from midflight.controller.instance_stop import dismiss
from midflight.controller.scale_rules import SCALEIN, SCALEOUT, bounds, unknown
from midflight.controller.state import OPEN, Job, Operation, Phase, Progress, Stage
from midflight.deadlines import KEEPER_REPORT
from midflight.quantities import counted

HISTORY = 50  # operations that are kept
ACCEPTED = {SCALEOUT: "ScaleOut", SCALEIN: "ScaleIn"}


def accept(draft: Draft, key: str, operation: Operation, target: int) -> None:
    """Put it in the queue. `objection` had nothing against it."""
    job = draft.jobs[key]
    namesakes = [other for other in job.operations if operation.id == other.id]
    if any(other.progress in OPEN or other.source == operation.source for other in namesakes):
        return
    operation = replace(operation, target=target)
    others = tuple(other for other in job.operations if other not in namesakes)
    draft.set_job(key, operations=(*_kept(others), operation))
    _say(draft, key, operation, "Asked", f"{operation.id}: {operation.was} to {operation.target}")


def _kept(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """All that are open, and the latest of the others."""
    ended = [operation for operation in operations if operation.progress not in OPEN]
    forgotten = ended[: max(len(ended) - HISTORY, 0)]
    return tuple(operation for operation in operations if operation not in forgotten)


def operate(draft: Draft, key: str) -> None:
    """Move the first open operation on as far as it goes, and then the next."""
    for operation in roster.open_operations(draft.jobs[key])[1:]:
        if operation.progress is Progress.QUEUED and draft.now >= operation.deadline:
            text = f"it waited {operation.timeout:g} s for another operation to end"
            _end(draft, key, operation, Progress.FAILED, text)
    while waiting := roster.open_operations(draft.jobs[key]):
        if not _step(draft, key, waiting[0]):
            return


def _step(draft: Draft, key: str, operation: Operation) -> bool:
    """Whether there is more to do at once."""
    job = draft.jobs[key]
    match operation.progress:
        case Progress.QUEUED:
            return _take_its_turn(draft, key, operation)
        case Progress.PLACING:
            return _await_instances(draft, key, operation)
        case Progress.STOPPING if not _here(job, operation):
            _end(draft, key, operation, Progress.SUCCEEDED, operation.message)
            return True
        case Progress.ROLLING_BACK if not _here(job, operation):
            _end(draft, key, operation, Progress.FAILED, operation.message)
            return True
    return False


def _here(job: Job, operation: Operation) -> list[str]:
    return [name for name in operation.workers if name in job.instances]


# --- a turn begins ----------------------------------------------------------------------------


def _take_its_turn(draft: Draft, key: str, operation: Operation) -> bool:
    job = draft.jobs[key]
    if job.phase not in (Phase.RUNNING, Phase.SCALING):
        return False
    was = roster.size(job)
    target = was + operation.count if operation.kind == SCALEOUT else was - operation.count
    if wrong := bounds(job, was, target) or unknown(job, operation.workers):
        _end(draft, key, operation, Progress.FAILED, wrong)  # another one came out differently
        return True
    if operation.kind == SCALEOUT:
        workers = add_workers(draft, key, operation.count)
    else:
        workers = operation.workers or _first_to_leave(job, operation.count)
    draft.set_operation(
        key,
        operation,
        workers=workers,
        was=was,
        target=target,
        deadline=draft.now + operation.timeout,
        asked_at=draft.now,
        progress=Progress.ASKED,
        message=f"the training was asked to use {counted(target, 'worker')} instead of {was}",
    )
    return False


def _first_to_leave(job: Job, count: int) -> tuple[str, ...]:
    """Those that do not run yet, then the newest."""
    last = sorted(roster.movable(job), key=lambda i: (roster.waits(i), i.index))[-count:]
    return tuple(instance.name for instance in reversed(last))


# --- the training's answer --------------------------------------------------------------------


def progressed(draft: Draft, key: str, identity: str, detail: str) -> None:
    if (operation := _asked(draft, key, identity)) is not None and operation.message != detail:
        draft.set_operation(key, operation, message=detail)


def answered(draft: Draft, key: str, identity: str, ok: bool, detail: str) -> None:
    operation = _asked(draft, key, identity)
    if operation is None:
        return
    if not ok:
        _answered_no(draft, key, operation, detail or "the training refused")
        return
    text = detail or f"{operation.was} to {counted(operation.target, 'worker')}"
    if operation.kind == SCALEOUT:
        # The training may have workers of whose start nothing was heard here yet.
        heard_by = max(operation.deadline, draft.now + KEEPER_REPORT)
        draft.set_operation(
            key, operation, progress=Progress.PLACING, message=text, deadline=heard_by
        )
        return
    draft.set_job(key, wanted=operation.target)
    draft.set_operation(key, operation, progress=Progress.STOPPING, message=text)
    for name in operation.workers:
        dismiss(draft, key, name, "scaled in")


def _asked(draft: Draft, key: str, identity: str) -> Operation | None:
    for operation in roster.open_operations(draft.jobs[key]):
        if operation.id == identity and operation.progress is Progress.ASKED:
            return operation
    return None


def _answered_no(draft: Draft, key: str, operation: Operation, detail: str) -> None:
    text = "; ".join([detail, *_waiting_for_room(draft.jobs[key])])
    if operation.kind == SCALEIN:
        _end(draft, key, operation, Progress.FAILED, text)
    elif not _settle_for_less(draft, key, operation, text):
        _roll_back(draft, key, operation, text)


def _settle_for_less(draft: Draft, key: str, operation: Operation, text: str) -> bool:
    """Ask for what came in time, once: if that is refused too, or all came, it is not the room."""
    job = draft.jobs[key]
    came = tuple(
        name for name in _here(job, operation) if job.instances[name].stage is Stage.RUNNING
    )
    first_time = len(operation.workers) == operation.count
    if not operation.partial or not first_time or not 0 < len(came) < operation.count:
        return False
    for name in operation.workers:
        if name not in came:
            dismiss(draft, key, name, "it was not there in time")
    draft.set_operation(
        key,
        operation,
        workers=came,
        target=operation.was + len(came),
        deadline=draft.now + operation.timeout,
        asked_at=draft.now,
        progress=Progress.ASKED,
        message=f"{len(came)} of {operation.count} came in time: {text}",
    )
    return True


def _waiting_for_room(job: Job) -> list[str]:
    return [
        f"{instance.name} is pending: {instance.reason or 'not placed yet'}"
        for instance in roster.staying(job)
        if roster.waits(instance)
    ]


# --- its instances ----------------------------------------------------------------------------


def _await_instances(draft: Draft, key: str, operation: Operation) -> bool:
    """The training has agreed. One that ran and fell again meanwhile is another matter."""
    job = draft.jobs[key]
    here = [job.instances[name] for name in _here(job, operation)]
    absent = [i for i in here if i.started_at is None and i.exit_code is None]
    if absent and draft.now < operation.deadline:
        return False
    if not absent:
        short = len(operation.workers) < operation.count
        text = f"{len(operation.workers)} of {operation.count}: " if short else ""
        _end(draft, key, operation, Progress.SUCCEEDED, text + operation.message)
        return True
    text = "; ".join(["not all instances started in time", *_waiting_for_room(job)])
    if not _settle_for_less(draft, key, operation, text):
        _roll_back(draft, key, operation, text)
    return True


def _roll_back(draft: Draft, key: str, operation: Operation, text: str) -> None:
    draft.set_operation(key, operation, progress=Progress.ROLLING_BACK, message=text)
    for name in operation.workers:
        dismiss(draft, key, name, "the scale operation failed")


# --- ends -------------------------------------------------------------------------------------


def abandon(draft: Draft, key: str, reason: str) -> None:
    """Nothing more will come of any of them; instances that came for one go again."""
    for operation in roster.open_operations(draft.jobs[key]):
        if operation.progress is Progress.QUEUED or operation.kind == SCALEIN:
            close(draft, key, operation, reason)
        elif operation.progress is not Progress.ROLLING_BACK:
            _roll_back(draft, key, operation, reason)


def close_all(draft: Draft, key: str, reason: str) -> None:
    for operation in roster.open_operations(draft.jobs[key]):
        close(draft, key, operation, reason)


def close(draft: Draft, key: str, operation: Operation, reason: str) -> None:
    """At once, whatever it waits for: the job is over, or starts anew."""
    agreed = operation.progress in (Progress.STOPPING, Progress.PLACING)
    kept = agreed or operation.progress is Progress.ROLLING_BACK
    progress = Progress.SUCCEEDED if agreed else Progress.FAILED
    _end(draft, key, operation, progress, operation.message if kept else reason)


def _end(draft: Draft, key: str, operation: Operation, progress: Progress, text: str) -> None:
    draft.set_operation(key, operation, progress=progress, message=text, ended_at=draft.now)
    if progress is Progress.SUCCEEDED:
        draft.set_job(key, wanted=operation.target)
    word = "Succeeded" if progress is Progress.SUCCEEDED else "Failed"
    _say(draft, key, operation, word, f"{operation.id}: {text}")


def _say(draft: Draft, key: str, operation: Operation, word: str, text: str) -> None:
    say = draft.warn if word == "Failed" else draft.record
    say(key, draft.about_job(key), f"{ACCEPTED[operation.kind]}{word}", text)
