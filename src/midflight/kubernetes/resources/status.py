"""Status: what the controller knows of a job, as its object shows it, and read back from there.

`.status` holds what et-operator's (and Kubeflow's) users look for; `.status.midflight` holds the
controller's own state, without the spec, which is the object's. `version` counts the writes:
whoever finds another one there than it wrote itself reads all of it again.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from midflight.controller import roster
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import (
    Code,
    Instance,
    Job,
    Operation,
    Phase,
    Progress,
    Role,
    Stage,
)
from midflight.errors import ProtocolError, StoreError
from midflight.kubernetes import names
from midflight.protocol import codec
from midflight.quantities import counted

FORMAT = 1
PHASES = {
    Phase.PENDING: "Created",
    Phase.RUNNING: "Running",
    Phase.SCALING: "Scaling",
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.MAX_WAIT_TIME_EXCEEDED: "Failed",
}
SUSPENDED = "Suspended"  # phase and condition
# Conditions that end when their phase does. A spec that was refused has Failed, until it is mended.
_OPEN = ("WorkersReady", "Running", "Scaling", "Succeeded", "Failed")


@dataclass(frozen=True)
class Saved:
    """What `.status.midflight` holds."""

    job: Job
    version: int = 0
    replicas: int = 0  # of the spec, when it was last looked at
    refused: bool = False  # the object's spec makes no sense now: the last that did is kept here


def read(obj: Mapping[str, Any], spec: Spec) -> Saved:
    """As it was saved; a job that nobody has looked at yet is PENDING, and has nothing."""
    found = (obj.get("status") or {}).get("midflight")
    meta = obj["metadata"]
    if not found:
        code = Code.NONE if spec.sync is None else Code.FETCHING
        new = Job(spec, meta["uid"], seconds_of(meta["creationTimestamp"]), spec.workers, code=code)
        return Saved(new, replicas=spec.workers)
    if found.get("format") != FORMAT:
        raise StoreError(
            f"the state of {spec.key} has format {found.get('format')!r}, and this Midflight knows "
            f"{FORMAT}: run the operator that wrote it"
        )
    try:
        job = codec.decode(Job, {**found["job"], "spec": codec.encode(spec)})
        return Saved(job, int(found["version"]), int(found["replicas"]), "spec" in found)
    except (ProtocolError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"the state of {spec.key} cannot be read: {error!r:.500}") from None


def wanted(obj: Mapping[str, Any]) -> int | None:
    """How many workers the state says, whoever wrote it; None for a job without any state."""
    found = (obj.get("status") or {}).get("midflight")
    if not found:
        return None
    job = found.get("job")
    said = job.get("wanted") if isinstance(job, Mapping) else None
    return said if isinstance(said, int) else 1


def kept_spec(obj: Mapping[str, Any]) -> Spec | None:
    """The last one that made sense, if that is no longer the object's."""
    found = (obj.get("status") or {}).get("midflight") or {}
    try:
        return codec.decode(Spec, found["spec"])
    except (ProtocolError, KeyError):
        return None


@dataclass(frozen=True)
class Seen:
    """What a status says beside the controller's state."""

    pods: Container[str] | None = None  # those that there are; None: all that there should be
    worker_only: bool = False  # the object has no Master: ours counts as one of its workers


def write(
    saved: Saved,
    before: Mapping[str, Any],
    now: float,
    summary: Mapping[str, Any] | None = None,
    seen: Seen = Seen(),  # noqa: B008
) -> dict[str, Any]:
    """The whole `.status`; `before` is the one it replaces, `summary` is for `list`."""
    job = saved.job
    roles = " in (master,worker)" if seen.worker_only else f"={Role.WORKER.value}"
    workers = roster.staying(job) if seen.worker_only else roster.movable(job)
    shown = {
        "phase": SUSPENDED if job.held else PHASES[job.phase],
        "conditions": conditions(job, before.get("conditions"), now, seen.pods),
        "replicaStatuses": _replicas(job, seen.worker_only),
        "startTime": time_text(job.started_at),
        "completionTime": time_text(job.ended_at),
        "lastReconcileTime": time_text(now),
        "restartCount": job.restarts,
        "replicas": len(workers),
        "selector": f"{names.JOB}={job.spec.name},{names.ROLE}{roles}",
        "targetWorkers": [i.name for i in roster.staying(job)],
        "currentWorkers": sorted(roster.hosts(job), key=lambda name: job.instances[name].index),
        "currentScaler": _scaler(job),
        "midflight": {
            "format": FORMAT,
            "version": saved.version,
            "replicas": saved.replicas,
            "job": _state(job),
            **({"summary": summary} if summary else {}),
            **({"spec": codec.encode(job.spec)} if saved.refused else {}),
        },
    }
    return {key: value for key, value in shown.items() if value is not None}


def _state(job: Job) -> dict[str, Any]:
    """Without the spec, and without what every instance and operation has unless it is said."""
    state = _said(job)
    state.pop("spec")
    state["instances"] = {name: _said(each) for name, each in job.instances.items()}
    state["operations"] = [_said(each) for each in job.operations]
    return state


def _said(value: Any) -> dict[str, Any]:
    usual = {each.name: each.default for each in fields(value)}
    encoded: dict[str, Any] = codec.encode(value)
    return {name: each for name, each in encoded.items() if getattr(value, name) != usual[name]}


def refused_job(reason: str, generation: int | None, now: float) -> dict[str, Any]:
    """Of an object that is no job; nothing happens until it is changed."""
    failed = _condition("Failed", True, "InvalidSpec", reason, None, now)
    return {"phase": "Failed", "conditions": [failed], "observedGeneration": generation}


def held_job(who: str, generation: int | None, now: float) -> dict[str, Any]:
    """Of one that is not to begin yet, says `who`."""
    held = _condition(SUSPENDED, True, SUSPENDED, _holds(who), None, now)
    return {"phase": SUSPENDED, "conditions": [held], "observedGeneration": generation}


def _holds(who: str) -> str:
    return f"{who} holds it back"


def is_anothers(obj: Mapping[str, Any]) -> bool:
    """Another operator has written its status: et-operator, before ours came, or Kubeflow's."""
    found = obj.get("status") or {}
    said = found.get("phase") or found.get("conditions")
    return bool(said) and not {"midflight", "observedGeneration"} & set(found)


# --- what people look for -------------------------------------------------------------------------


def conditions(
    job: Job, before: object, now: float, pods: Container[str] | None = None
) -> list[dict[str, Any]]:
    """In the order in which they first came true; times change only when a status does."""
    former = _by_type(before)
    wanted = _true_ones(job, pods)
    found = {}
    for kind in [*former, *(each for each in wanted if each not in former)]:
        status = kind in wanted or (kind in former and kind not in _OPEN and _lasting(former[kind]))
        reason, message = wanted.get(kind, (kind, former.get(kind, {}).get("message", "")))
        found[kind] = _condition(kind, status, reason, message, former.get(kind), now)
    return list(found.values())


def _by_type(found: object) -> dict[str, Mapping[str, Any]]:
    """Whoever may write the status may have written these: what is no condition is left out."""
    each = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    return {
        one["type"]: one
        for one in each
        if isinstance(one.get("type"), str) and isinstance(one.get("status"), str)
    }


def _lasting(condition: Mapping[str, Any]) -> bool:
    return condition["status"] == "True" and condition["type"] not in ("Restarting", SUSPENDED)


def _true_ones(job: Job, pods: Container[str] | None) -> dict[str, tuple[str, str]]:
    """Types that hold now, with reason and message."""
    found = {"Created": ("Accepted", "the job was accepted")}
    workers = roster.counted(job)
    if made := [i for i in workers if pods is None or i.name in pods]:
        found["WorkersCreated"] = (
            "WorkersCreated",
            f"{len(made)} of {counted(len(workers), 'worker')}",
        )
    chief = job.instances.get(roster.chief_name(job.spec))
    if chief is not None and chief.attempt and (pods is None or chief.name in pods):
        found["LauncherCreated"] = ("LauncherCreated", chief.name)
    running = sum(i.stage is Stage.RUNNING for i in workers)
    if running >= job.spec.least:
        found["WorkersReady"] = ("WorkersReady", f"{running} of {job.wanted} run")
    if job.phase is Phase.PENDING:
        found["Created"] = ("Pending", job.reason or "instances are starting")
    elif job.phase in (Phase.RUNNING, Phase.SCALING):
        found["Running"] = ("Running", job.reason or f"{running} of {job.wanted} workers run")
    if job.held:
        found[SUSPENDED] = (SUSPENDED, _holds(job.held))
    if job.phase is Phase.SCALING:
        found["Scaling"] = ("Scaling", _scaler(job) or "")
    if job.finished:
        word = PHASES[job.phase]
        reason = word if job.phase is not Phase.MAX_WAIT_TIME_EXCEEDED else "MaxWaitTimeExceeded"
        found[word] = (reason, job.reason or "the job succeeded")
    return found


def _condition(
    kind: str, holds: bool, reason: str, message: str, former: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    status = "True" if holds else "False"
    if former is not None and former["status"] == status and former.get("message") == message:
        return dict(former)
    same = former is not None and former["status"] == status
    since = former.get("lastTransitionTime") if former is not None and same else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": time_text(now),
        "lastTransitionTime": since or time_text(now),
    }


def _replicas(job: Job, worker_only: bool) -> dict[str, dict[str, int]]:
    if worker_only:
        return {"Worker": _counts(roster.counted(job))}
    word = "Launcher" if job.spec.kind is Kind.ETJOB else "Master"
    chiefs = [i for i in job.instances.values() if i.role is not Role.WORKER]
    workers = [i for i in job.instances.values() if i.role is Role.WORKER]
    return {word: _counts(chiefs), "Worker": _counts(workers)}


def _counts(instances: list[Instance]) -> dict[str, int]:
    return {
        "active": sum(i.stage is Stage.RUNNING for i in instances),
        "succeeded": sum(i.stage is Stage.COMPLETED for i in instances),
        "failed": sum(i.stage is Stage.ERROR for i in instances),
    }


def _scaler(job: Job) -> str | None:
    """As et-operator writes it: `ScaleIn:NAMESPACE/NAME`."""
    for operation in roster.open_operations(job):
        word = names.SCALEOUT if operation.kind == "scaleout" else names.SCALEIN
        return f"{word}:{job.spec.namespace}/{operation.id}"
    return None


# --- scale objects --------------------------------------------------------------------------------


def scaler_status(
    operation: Operation, before: Mapping[str, Any], now: float, pods: str
) -> dict[str, Any]:
    """Of a ScaleOut or ScaleIn that was accepted; `pods` is the name of its list."""
    ended = operation.progress in (Progress.SUCCEEDED, Progress.FAILED)
    if operation.progress is Progress.SUCCEEDED:
        word = "ScaleSucceeded"
    else:
        word = "ScaleFailed" if ended else "Scaling"
    if operation.progress is Progress.QUEUED:
        word = "Created"
    return {
        **_of_scaler(word, operation.message, before, now),
        "startTime": time_text(operation.asked_at or operation.created_at),
        **({"completionTime": time_text(operation.ended_at)} if ended else {}),
        pods: list(operation.workers),
    }


def refused_status(reason: str, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Of one that was not accepted, and never will be."""
    found = _of_scaler("ScaleFailed", reason, before, now)
    return {**found, "completionTime": time_text(now)}


def is_over(scaler: Mapping[str, Any]) -> bool:
    return (scaler.get("status") or {}).get("phase") in ("ScaleSucceeded", "ScaleFailed")


def _of_scaler(word: str, message: str, before: Mapping[str, Any], now: float) -> dict[str, Any]:
    former = _by_type(before.get("conditions"))
    kept = [each for kind, each in former.items() if kind != word]
    if word != "Scaling":
        kept = [{**each, "status": "False"} if each["type"] == "Scaling" else each for each in kept]
    reason = word if word != "Created" else "Queued"
    mine = _condition(word, True, reason, message, former.get(word), now)
    return {"phase": word, "conditions": [*kept, mine]}


# --- times ----------------------------------------------------------------------------------------


def time_text(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
