"""Applying manifests to a cluster, one by one, and saying what became of each.

Server-side apply, always as the same manager. What carries our label is ours, and is made to be
what we say; what does not is somebody else's, and is left alone: it is refused, or taken over where
that was asked for. Which of the two a CRD of another operator is, is the caller's to say.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from midflight.errors import NotFound, Refused, TimedOut
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.api.paths import of, word
from midflight.kubernetes.resources.labels import is_ours

MANAGER = "midflight-install"
_RULES = "x-kubernetes-validations"
_RULES_SINCE = (1, 25)
_POLICY_SINCE = (1, 21)
_ATTEMPTS = 10  # at an object that others change meanwhile
_PAUSES = (0.05, 0.1, 0.2, 0.5)  # seconds between two looks; the last one stays

Object = dict[str, Any]


@dataclass(frozen=True)
class Done:
    what: str  # as kubectl calls it: deployment.apps/midflight-operator
    how: str  # created | configured | unchanged | deleted


def apply(
    connection: Connection, manifests: Sequence[Object], take_over: bool = False
) -> Iterator[Done]:
    version = number(connection.version())
    for manifest in manifests:
        yield apply_one(connection, as_served(manifest, version), take_over)


def apply_one(connection: Connection, manifest: Object, take_over: bool = False) -> Done:
    before = connection.find_object(manifest)
    # A manifest without our label does not claim the object, and may be added to anybody's.
    if before is None or is_ours(before) or not is_ours(manifest):
        after = connection.apply(manifest, MANAGER)
    elif take_over:
        after = _taken(connection, manifest, before)
    else:
        raise Refused(
            f"{word(manifest)} is there already, made by {_managers(before)} and not by Midflight; "
            "remove it, or stop whatever uses it and say --take-over"
        )
    if before is None:
        return Done(word(manifest), "created")
    same = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
    return Done(word(manifest), "unchanged" if same else "configured")


def number(version: str) -> tuple[int, int]:
    """Of Kubernetes: (1, 20) for v1.20.2."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int("".join(takewhile(str.isdigit, minor)) or 0)


def as_served(manifest: Object, version: tuple[int, int]) -> Object:
    """As a cluster of that version understands it; older ones refuse what they do not know."""
    if version < _POLICY_SINCE and manifest["apiVersion"] == "policy/v1":
        return {**manifest, "apiVersion": "policy/v1beta1"}
    if version < _RULES_SINCE and manifest["kind"] == "CustomResourceDefinition":
        return {**manifest, "spec": _without_rules(manifest["spec"])}
    return manifest


def _without_rules(value: Any) -> Any:
    """The operator checks the same, only later."""
    if isinstance(value, dict):
        return {key: _without_rules(one) for key, one in value.items() if key != _RULES}
    return [_without_rules(one) for one in value] if isinstance(value, list) else value


def delete(connection: Connection, manifest: Object) -> Done | None:
    """None if it was gone already."""
    try:
        connection.delete_object(manifest, propagationPolicy="Background")
    except NotFound:
        return None
    return Done(word(manifest), "deleted")


def _taken(connection: Connection, manifest: Object, before: Object) -> Object:
    """The API server's own controllers change an object, too, above all one that is new."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _take(connection, manifest, before)
        except Changed:
            before = connection.find_object(manifest) or before
    return _take(connection, manifest, before)


def _take(connection: Connection, manifest: Object, before: Object) -> Object:
    """Replaced first: an apply leaves every field in place that others have set and we have not."""
    version = before["metadata"]["resourceVersion"]
    whole = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
    if manifest["kind"] == "CustomResourceDefinition":
        # Left over from the API that et-operator's was made with; it excludes defaults.
        whole["spec"] = {**manifest["spec"], "preserveUnknownFields": False}
    connection.replace(whole, MANAGER)
    return _own(connection, manifest, connection.apply(manifest, MANAGER))


def _own(connection: Connection, manifest: Object, after: Object) -> Object:
    """Forget who else had a say, or a field that we drop one day would stay for ever."""
    meta = after["metadata"]
    mine = (MANAGER, "Apply")
    kept = [
        entry
        for entry in meta.get("managedFields") or []
        if (entry["manager"], entry["operation"]) == mine
        or "f:spec" not in (entry.get("fieldsV1") or {})
    ]
    body = {"metadata": {"managedFields": kept, "resourceVersion": meta["resourceVersion"]}}
    return connection.patch(of(manifest, name=True), body, f"own {word(manifest)}")


def _managers(before: Object) -> str:
    entries = before["metadata"].get("managedFields") or []
    found = sorted({entry["manager"] for entry in entries if entry.get("manager")})
    return ", ".join(found) or "somebody"


# --- waiting --------------------------------------------------------------------------------------


def until(look: Callable[[], str], seconds: float, tell: Callable[[str], None]) -> None:
    """Look until nothing is said to be missing any more; what is missing is told each time."""
    deadline = time.monotonic() + seconds
    turn = 0
    while missing := look():
        tell(missing)
        if time.monotonic() > deadline:
            raise TimedOut(f"{missing}, after {seconds:g} s")
        time.sleep(_PAUSES[min(turn, len(_PAUSES) - 1)])
        turn += 1


def being_deleted(connection: Connection, manifests: Sequence[Object]) -> str:
    """Which of these are on their way out: what is applied to them goes with them."""
    found_now = [connection.find_object(manifest) for manifest in manifests]
    going = [
        str(one["metadata"]["name"])
        for one in found_now
        if one is not None and "deletionTimestamp" in one["metadata"]
    ]
    return f"{', '.join(going)} still being deleted" if going else ""


def not_served(connection: Connection, manifests: Sequence[Object]) -> str:
    """Which of these kinds the API server does not know yet."""
    missing = [
        crd["metadata"]["name"]
        for crd in manifests
        if crd["kind"] == "CustomResourceDefinition"
        and not (established(connection.find_object(crd)) and _is_listed(connection, crd["spec"]))
    ]
    return f"{', '.join(missing)} not served yet" if missing else ""


def _is_listed(connection: Connection, spec: Object) -> bool:
    """A kind can be asked for a moment after it is said to be established."""
    api = f"{spec['group']}/{spec['versions'][0]['name']}"
    try:
        answer = connection.ask("GET", f"/apis/{api}", what=f"tell the kinds of {api}")
    except NotFound:
        return False
    return any(one["name"] == spec["names"]["plural"] for one in answer.get("resources") or [])


def established(crd: Object | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
