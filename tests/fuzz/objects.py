"""What users of a cluster write, as targets: jobs with all that is made of them, scale objects and
the state in a job's status, which whoever may write there can change.
"""

import contextlib
import json
from typing import Any

from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.pods import PodDefaults, dependents
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.pod import render
from midflight.kubernetes.resources import status
from midflight.kubernetes.resources.job_spec import spec_of
from tests.kubernetes.job_objects import chief_of, job_of, training_job, worker_of

KINDS = (names.TRAININGJOB, names.PYTORCHJOB)
META = {"name": "job", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
JOB = job_of(training_job())


def mapping(data: bytes) -> dict[str, Any]:
    """As the API server hands it on: without surrogates, which it replaces, and NaN."""
    value: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        plain = json.dumps(json.loads(data), ensure_ascii=False, allow_nan=False)
        value = json.loads(plain.encode(errors="replace"))
    return value if isinstance(value, dict) else {}


def job(data: bytes) -> None:
    """The API server sees to the kind and to what it writes itself; the rest is the user's."""
    obj = mapping(data)
    if obj.get("kind") not in KINDS:
        return
    own = obj.get("metadata")
    obj["metadata"] = {**(own if isinstance(own, dict) else {}), **META}
    spec = spec_of(obj)
    made = job_of(obj)
    dependents.objects(obj, made, "token", PodDefaults())
    if spec.sync is not None:
        code_pod(obj, made, PodDefaults())
    for each in (chief_of(made), worker_of(made)):
        with contextlib.suppress(UsageError):
            render(obj, made, each, PodDefaults("midflight:1"))


def scale_object(data: bytes) -> None:
    for kind in (names.SCALEOUT, names.SCALEIN):
        obj = {"kind": kind, "metadata": META, "spec": mapping(data).get("spec")}
        scale_requests.job_of(obj)
        scale_requests.gives_up_at(obj)
        scale_requests.judge(JOB, obj, 1.0)
        status.is_over({**obj, "status": mapping(data)})


def job_status(data: bytes) -> None:
    obj = {"metadata": META, "status": mapping(data)}
    status.wanted(obj)
    status.kept_spec(obj)
    status.is_anothers(obj)
    status.read(obj, JOB.spec)
