"""Submitting to a cluster: the objects of a job are created in order, all of them or none.

What is wrong is found before anything is made, where that can be: a name that is taken, a priority
that does not exist, a cluster without the operator. What the API server refuses later takes back
what was made before. Afterwards whatever was made for the job belongs to it, and goes with it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from midflight.controller.spec import DEFAULT_NAMESPACE, Spec
from midflight.errors import Exists, MidflightError, NotFound, Refused, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api import paths
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.manifests import job as manifests
from midflight.kubernetes.names import JOB_KINDS
from midflight.kubernetes.resources import labels
from midflight.kubernetes.verbs import requests


def rendered(spec: Spec, owner: str) -> list[Object]:
    """The manifests, with the files that they hold read here and now."""
    return manifests.objects_of(spec, owner, config_files(spec))


def config_files(spec: Spec) -> Mapping[str, str]:
    """What the files of --config-file hold, by the path as it was written."""
    found: dict[str, str] = {}
    for item in spec.container.config_files:
        path = item.partition(":")[0]
        try:
            found[path] = Path(path).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--config-file {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(
                f"--config-file {path} is not text; put it on a volume and mount that with --data"
            ) from None
    return found


def create(connection: Connection, spec: Spec, owner: str, tell: Callable[[str], None]) -> Object:
    """The job's object. What is created is told, in kubectl's words, once all of it is there."""
    made = rendered(spec, owner)
    connection.version()  # one that is too old would refuse in words that nobody understands
    check_free(connection, spec, owner)
    _check_priority(connection, spec.container.priority)
    created = _create_all(connection, made)
    *helpers, job = created
    _own(connection, job, helpers)
    for obj in created:
        tell(paths.word(obj))
    requests.note(connection, job, requests.submitted(job["kind"], spec.name), owner)
    return job


def check_free(connection: Connection, spec: Spec, owner: str) -> None:
    """Exists if the name is taken, whatever kind of job has it: their pods would be named alike."""
    for kind in JOB_KINDS.values():
        try:
            found = connection.find(kind, spec.namespace, spec.name)
        except NoSuchKind:
            if kind == JOB_KINDS[spec.kind.value]:
                raise connection.no_resources() from None
            continue
        if found is not None:
            raise Exists(_taken(spec, found, owner))


def _taken(spec: Spec, found: Object, owner: str) -> str:
    name, meta = spec.name, found["metadata"]
    if meta.get("deletionTimestamp"):
        return f"the job {name} is still being deleted, please try again in a moment"
    other = (meta.get("annotations") or {}).get(names.USERNAME)
    if owner and other and other != owner:
        return (
            f"the job {name} is already exist and it owned by other user,"
            f"you have no privileges to operate it: it is {other}'s, please choose another name"
        )
    where = "" if spec.namespace == DEFAULT_NAMESPACE else f" -n {spec.namespace}"
    return (
        f"the job {name} is already exist, please delete it first. use 'arena delete {name}{where}'"
    )


def _check_priority(connection: Connection, name: str) -> None:
    if not name:
        return
    with suppress(Refused):  # who may not look at priorities is told later if it is wrong
        try:
            connection.get("PriorityClass", "", name)
        except NotFound:
            raise UsageError(
                f"the priority {name} doesn't exist. "
                "Please check with `kubectl get pc` to get a valid priority"
            ) from None


def _create_all(connection: Connection, made: Sequence[Object]) -> list[Object]:
    created: list[Object] = []
    try:
        for obj in made:
            word = paths.word(obj)
            try:
                answer = connection.create(obj)
            except Exists:
                name = obj["metadata"]["name"]
                raise Exists(
                    f"{word} is already exist, please delete it first: another job made it, or "
                    f"`kubectl delete {obj['kind'].lower()} {name}` removes what one left behind"
                ) from None
            created.append({"apiVersion": obj["apiVersion"], "kind": obj["kind"], **answer})
    except BaseException:
        take_back(connection, created)
        raise
    return created


def take_back(connection: Connection, created: Sequence[Object]) -> None:
    """Those objects and no others, even if somebody makes new ones of the same names meanwhile."""
    for obj in reversed(created):
        with suppress(MidflightError):  # the error that led here is the one to be told
            uid = obj["metadata"]["uid"]
            connection.delete_object(
                obj, preconditions={"uid": uid}, propagationPolicy="Background"
            )


def _own(connection: Connection, job: Object, helpers: Sequence[Object]) -> None:
    owner = labels.owner_reference(job, controller=False)
    try:
        for obj in helpers:
            connection.patch(
                paths.of(obj, name=True),
                {"metadata": {"ownerReferences": [owner]}},
                f"patch {paths.word(obj)}",
            )
    except BaseException:
        take_back(connection, [*helpers, job])
        raise
