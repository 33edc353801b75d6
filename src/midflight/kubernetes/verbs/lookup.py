"""Finding jobs on a cluster: their objects, what the controller saved in them, and their pods.

A name is looked for among both kinds of job. An object that cannot be read (somebody wrote it by
hand, or a newer operator did) is found all the same, with what is wrong with it.
"""

from dataclasses import dataclass

from midflight.controller.state import Job
from midflight.errors import MidflightError, NotFound, Refused
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object, selector
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.api.paths import APIS
from midflight.kubernetes.names import JOB_KINDS
from midflight.kubernetes.resources import foreign, summary


@dataclass(frozen=True)
class Found:
    obj: Object
    job: Job | None  # None: it cannot be read
    wrong: str = ""

    @property
    def kind(self) -> str:
        return str(self.obj["kind"])

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])


def read(obj: Object, kind: str) -> Found:
    whole = {**obj, "kind": kind, "apiVersion": APIS[kind]}
    try:
        return Found(whole, summary.job_of(whole))
    except MidflightError as error:
        return Found(whole, None, str(error))


def find(connection: Connection, namespace: str, name: str) -> Found:
    """NotFound if there is none; Refused if there are two."""
    found = []
    for kind in JOB_KINDS.values():
        try:
            obj = connection.find(kind, namespace, name)
        except NoSuchKind:
            if kind == names.TRAININGJOB:
                raise connection.no_resources() from None
            continue
        if obj is not None:
            found.append(read(obj, kind))
    if not found:
        raise NotFound(f"there is no job {name} in namespace {namespace}")
    if len(found) > 1:
        raise Refused(
            f"there are more than 1 training jobs with the same name {name}, please check it with "
            f"`kubectl get trainingjobs,pytorchjobs -n {namespace}` and delete one of them"
        )
    return found[0]


def job_of(found: Found) -> Job:
    """Refused, with what is wrong, if it cannot be read."""
    if found.job is None:
        name = found.obj["metadata"]["name"]
        raise Refused(f"the job {name} cannot be understood: {found.wrong}")
    return found.job


def pods_of(connection: Connection, found: Found) -> list[Object]:
    meta = found.obj["metadata"]
    label = foreign.LABELS[found.kind][0] if foreign.is_foreign(found.obj) else names.JOB
    chosen = selector({label: meta["name"]})
    return connection.items("Pod", meta["namespace"], labelSelector=chosen)
