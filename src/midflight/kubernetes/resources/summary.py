"""The summary of a job: what `list` shows of it.

The operator writes it into `.status.midflight.summary` whenever the job changes, so that `list`
reads it and computes nothing. A job that our operator has not taken up has none; its summary is
derived from its object. Every object has a summary, however odd it is: `get` says what is wrong.
"""

from collections.abc import Mapping
from typing import Any, cast

from midflight.controller import views
from midflight.controller.state import Cluster, Job, Phase
from midflight.controller.views import NONE
from midflight.errors import MidflightError
from midflight.kubernetes import names
from midflight.kubernetes.resources import foreign
from midflight.kubernetes.resources.status import read, seconds_of
from midflight.protocol.views import JobSummary, time_text

Object = Mapping[str, Any]
QUEUING = "QUEUING"
# What is written, with what holds for an object that cannot be read.
_WRITTEN: dict[str, Any] = {
    "status": Phase.PENDING.value,
    "reason": "",
    "priority": NONE,
    "startTime": None,
    "endTime": None,
    "workers": 0,
    "minWorkers": 0,
    "maxWorkers": 0,
    "requestGPUs": 0,
    "allocatedGPUs": 0,
    "node": NONE,
    "commit": "",
}


def of_job(obj: Object, job: Job, node: str = "") -> dict[str, Any]:
    """The part that changes with the job; `node`: the address of its chief's node, if it is known.

    A job that a queue has not let go yet is queuing.
    """
    whole: dict[str, Any] = dict(views.summary(Cluster(), job, job.created_at, ""))
    queuing = _is_suspended(obj) and not job.finished and (job.held or not job.instances)
    said = {"status": QUEUING} if queuing else {}
    return {**{key: whole[key] for key in _WRITTEN}, "node": node or NONE, **said}


def summary(obj: Object, kind: str, now: float, found: Object | None = None) -> JobSummary:
    """`kind`: etjob or pytorchjob. `found`: as `of_job` has it; None to read it from the object."""
    meta, found = obj["metadata"], found or _read(obj, kind)
    created = seconds_of(meta["creationTimestamp"])
    began = seconds_of(found["startTime"]) if found["startTime"] else created
    ended = seconds_of(found["endTime"]) if found["endTime"] else now
    whole = {
        **found,
        "uid": meta["uid"],
        "name": meta["name"],
        "namespace": meta["namespace"],
        "type": kind,
        "trainer": kind.upper(),
        "createTime": time_text(created),
        "duration": max(ended - began, 0.0),
        "chiefName": chief_name(meta["name"], kind),
        "folder": "",  # there is none: what belongs to a job is in its pods
        "labels": dict(meta.get("labels") or {}),
    }
    return cast(JobSummary, whole)


def phase_of(obj: Object, kind: str) -> str:
    return str(_read(obj, kind)["status"])


def chief_name(job: str, kind: str) -> str:
    return f"{job}-launcher" if kind == "etjob" else f"{job}-master-0"


def job_of(obj: Object) -> Job:
    """The whole job, as its object says; raises a MidflightError if it cannot be read."""
    from midflight.kubernetes.resources.job_spec import spec_of

    job = read(obj, spec_of(obj)).job
    return foreign.as_stated(job, obj) if foreign.is_foreign(obj) else job


def _read(obj: Object, kind: str) -> Object:
    state = (obj.get("status") or {}).get("midflight") or {}
    if written := state.get("summary"):
        return {**_WRITTEN, **written}  # an API server may drop what is null
    try:
        return of_job(obj, job_of({**obj, "kind": names.JOB_KINDS[kind]}))
    except MidflightError:
        phase = foreign.phase(obj) or Phase.PENDING
        queuing = _is_suspended(obj) and phase is Phase.PENDING
        word = QUEUING if queuing else phase.value
        return {**_WRITTEN, "status": word, "reason": foreign.reason(obj)}


def _is_suspended(obj: Object) -> bool:
    """By a queue."""
    annotations = obj["metadata"].get("annotations") or {}
    return bool(annotations.get(names.SUSPEND) == "true")
