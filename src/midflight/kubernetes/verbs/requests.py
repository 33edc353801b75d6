"""Who asked a cluster for what, as far as its objects tell.

Verbs leave the name of their user: on a job and on a scale object as an annotation, and in an Event
about the job, which outlives all of them. What other programs did is told by `managedFields`: which
program changed which field last, and when, but not for whom. Whoever may write an object may write
any name into it; only the API server's audit log proves who it was.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from midflight.errors import MidflightError
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.resources.status import time_text
from midflight.protocol.audit import Caller, Entry, view

SUBMITTED, SCALED, DELETED = "SubmitRequested", "ScaleRequested", "DeleteRequested"
KILLED = "KillRequested"
REASONS = (SUBMITTED, SCALED, DELETED, KILLED)
OPERATOR = "midflight-operator"  # as a field manager
KINDS = (*names.JOB_KINDS.values(), names.SCALEOUT, names.SCALEIN)
_OUTCOMES = {"ScaleSucceeded": True, "ScaleFailed": False}
_NOBODY: Mapping[str, Any] = {"manager": "", "time": "", "fieldsV1": {}}
Request = dict[str, Any]


@dataclass(frozen=True)
class Deed:
    reason: str  # of its Event
    what: str  # as it is shown
    said: str  # what somebody did, for whoever reads the Events of the job


def submitted(kind: str, name: str) -> Deed:
    return Deed(SUBMITTED, f"create {kind.lower()}/{name}", "submitted it")


def scaled(kind: str, name: str) -> Deed:
    return Deed(SCALED, f"create {kind.lower()}/{name}", f"asked for it to be scaled: {name}")


def deleted(kind: str, name: str) -> Deed:
    return Deed(DELETED, f"delete {kind.lower()}/{name}", "asked for it to be deleted")


def killed(pod: str) -> Deed:
    return Deed(KILLED, f"delete pod/{pod}", f"asked for {pod} to be killed")


def note(connection: Connection, job: Mapping[str, Any], deed: Deed, user: str) -> None:
    """Without the right to create Events nothing is left, and nothing fails."""
    at, meta = time_text(time.time()), job["metadata"]
    about = {key: meta[key] for key in ("namespace", "name", "uid")}
    api = names.API if job["kind"] == names.TRAININGJOB else names.PYTORCH_API
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{secrets.token_hex(6)}",
            "namespace": meta["namespace"],
            "annotations": {names.USERNAME: user, names.REQUEST: deed.what},
        },
        "involvedObject": {"apiVersion": api, "kind": job["kind"], **about},
        "type": "Normal",
        "reason": deed.reason,
        "message": f"{user or 'somebody'} {deed.said}",
        "source": {"component": names.MANAGER},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    with suppress(MidflightError):
        connection.create(event)


def requests(connection: Connection, namespace: str, job: str = "") -> list[Request]:
    """About this job, or all jobs, oldest first."""
    found: list[Request] = []
    there: set[str] = set()  # uids
    for kind in KINDS:
        with suppress(NoSuchKind):
            for obj in connection.items(kind, namespace):
                found += of_object({**obj, "kind": kind})
                there.add(obj["metadata"]["uid"])
    known = {(each["about"], each["what"]) for each in found}
    for reason in REASONS:
        for event in connection.items("Event", namespace, fieldSelector=f"reason={reason}"):
            request = _of_event(event)
            is_new = (request["about"], request["what"]) not in known
            was_another = reason == SUBMITTED and event["involvedObject"].get("uid") not in there
            if is_new or was_another:
                found.append(request)
    meant = [each for each in found if job in ("", each["about"].rpartition("/")[2])]
    return sorted(meant, key=lambda each: str(each["at"]))


def of_object(obj: Mapping[str, Any]) -> Iterator[Request]:
    """Who made a job or a scale object, and which programs have changed what it asks for."""
    meta, kind = obj["metadata"], obj["kind"]
    created = str(meta["creationTimestamp"])
    about = f"{meta['namespace']}/{meta['name'] if kind in names.JOB_TYPES else _job_of(obj)}"
    word = f"{kind.lower()}/{meta['name']}"
    outcome = (True, "") if kind in names.JOB_TYPES else _outcome(obj)
    made, *changes = sorted(_changes(meta), key=_age) or [_NOBODY]
    place = str(made["manager"])
    yield view(created, Caller(_user(meta)), place, Entry(f"create {word}", about, *outcome))
    for each in changes if made["time"] == created else (made, *changes):
        if fields := sorted(_leaves(each["fieldsV1"].get("f:spec"), "spec")):
            entry = Entry(f"update {word}: {', '.join(fields):.200}", about, done=True)
            yield view(each["time"], Caller(""), each["manager"], entry)


def _of_event(event: Object) -> Request:
    about, meta = event["involvedObject"], event["metadata"]
    said = (meta.get("annotations") or {}).get(names.REQUEST)
    word = said or f"delete {str(about.get('kind')).lower()}/{about.get('name')}"
    job = f"{about.get('namespace')}/{about.get('name')}"
    caller = Caller(_user(meta))
    return view(str(event.get("firstTimestamp")), caller, names.MANAGER, Entry(word, job, True))


def _user(meta: Mapping[str, Any]) -> str:
    return str((meta.get("annotations") or {}).get(names.USERNAME) or "")


def _job_of(scaler: Mapping[str, Any]) -> str:
    return str(((scaler.get("spec") or {}).get("selector") or {}).get("name") or "")


def _outcome(scaler: Mapping[str, Any]) -> tuple[bool | None, str]:
    found = scaler.get("status") or {}
    said = [str(each.get("message") or "") for each in found.get("conditions") or ()]
    return _OUTCOMES.get(str(found.get("phase"))), said[-1] if said else ""


def _changes(meta: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """By others than the operator."""
    for each in meta.get("managedFields") or ():
        if each.get("manager") != OPERATOR and each.get("subresource") != "status":
            yield {**_NOBODY, **each}


def _age(change: Mapping[str, Any]) -> tuple[str, bool]:
    """Times have whole seconds, and our verbs make objects but do not change them."""
    return change["time"], change["manager"] != names.MANAGER


def _leaves(fields: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    """The paths of all fields below; items of lists count as one."""
    below = {key[2:]: each for key, each in (fields or {}).items() if key.startswith("f:")}
    for name, each in below.items():
        yield from _leaves(each, f"{path}.{name}")
    if fields is not None and not below:
        yield path
