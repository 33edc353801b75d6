"""Which wishes for another number of workers are accepted.

Wishes wait their turn, so each is held against the size that the job will have once everything
before it is done. `operations.py` carries them out, and looks again when a turn comes.
"""

from midflight.controller import roster
from midflight.controller.state import Job, Phase
from midflight.quantities import counted

SCALEOUT = "scaleout"
SCALEIN = "scalein"
KINDS = (SCALEOUT, SCALEIN)


def objection(
    job: Job, kind: str, count: int, names: tuple[str, ...], to: int | None
) -> str | None:
    """Why a wish is refused, None if it is not. With `to`, kind and count do not matter."""
    if job.deleting:
        return f"the job {job.spec.name} is being deleted, so it cannot be scaled"
    if job.phase not in (Phase.RUNNING, Phase.SCALING):
        return (
            f"the job: {job.spec.name} status: {job.phase.value} , "
            "is not RUNNING or SCALING, please try again later"
        )
    if not roster.is_elastic(job.spec):
        return (
            f"the job {job.spec.name} has a fixed size of {counted(job.wanted, 'worker')}; "
            "submit it with --min-workers and --max-workers to scale it"
        )
    if to is None:
        return _against_count(job, kind, count, names)
    if names:
        return "ask for a size, or for workers by name, not for both"
    if to == roster.projected(job):
        return f"the job {job.spec.name} has {counted(to, 'worker')} already, or will have"
    return bounds(job, roster.projected(job), to)


def resolve(
    job: Job, kind: str, count: int, names: tuple[str, ...], to: int | None
) -> tuple[str, int]:
    """Kind and count of what was asked for."""
    if to is None:
        return kind, len(names) or count
    change = to - roster.projected(job)
    return (SCALEOUT if change > 0 else SCALEIN), abs(change)


def bounds(job: Job, now: int, target: int) -> str | None:
    """What is wrong with going from `now` workers to `target`."""
    spec = job.spec
    if target > now and target > spec.most:
        return (
            "the number of scaling out plus the number of current workers exceeds the max-workers."
            f" please try again later ({now} + {target - now} > {spec.most})"
        )
    if target < now and target < spec.least:
        return (
            "the number of current workers minus the number of scaling in is less than the "
            f"min-workers. please try again later ({now} - {now - target} < {spec.least})"
        )
    return None


def operation_id(job: Job, now: float) -> str:
    """NAME-SECONDS; a later second if that one is taken."""
    taken = {operation.id for operation in job.operations}
    seconds = int(now)
    while f"{job.spec.name}-{seconds}" in taken:
        seconds += 1
    return f"{job.spec.name}-{seconds}"


def unknown(job: Job, names: tuple[str, ...]) -> str | None:
    """What is wrong with these names of workers that are to leave."""
    known = [instance.name for instance in roster.movable(job)]
    for number, name in enumerate(names):
        if name == roster.chief_name(job.spec):
            return f"{name} cannot leave: without it the job would be over"
        if name not in known:
            return f"no worker of {job.spec.name} is named {name!r}; there are {', '.join(known)}"
        if name in names[:number]:
            return f"{name} was named twice"
    return None


def _against_count(job: Job, kind: str, count: int, names: tuple[str, ...]) -> str | None:
    if kind not in KINDS:
        return f"wanted {' or '.join(KINDS)}, got {kind!r}"
    if count <= 0:
        return f"--count is invalid: wanted at least 1, got {count}"
    if names and kind == SCALEOUT:
        return "new workers are named automatically; only scalein takes names"
    if names and count not in (1, len(names)):
        return f"--count is {count}, but {len(names)} workers were named; leave --count out"
    if wrong := unknown(job, names) or _already_leaving(job, names):
        return wrong
    now = roster.projected(job)
    change = len(names) or count
    return bounds(job, now, now + change if kind == SCALEOUT else now - change)


def _already_leaving(job: Job, names: tuple[str, ...]) -> str | None:
    for operation in roster.open_operations(job):
        for name in names:
            if operation.kind == SCALEIN and name in operation.workers:
                return f"{name} is leaving already, with {operation.id}"
    return None
