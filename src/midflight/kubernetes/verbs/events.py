"""What has happened on a cluster: Events of jobs, their pods and their scale objects, oldest first.

The API server can only look for one object's events at a time, so all of a namespace are read, in
pages, and chosen from here: those about objects of jobs, told apart by kind and name.
"""

import re
from collections.abc import Iterable
from typing import Any

from midflight.kubernetes import names
from midflight.kubernetes.resources.status import seconds_of
from midflight.protocol.views import EventView, time_text

Object = dict[str, Any]
_JOBS = (names.TRAININGJOB, names.PYTORCHJOB)
_SCALERS = (names.SCALEOUT, names.SCALEIN)
_POD = re.compile(r"(.+)-(launcher|code|master-\d+|worker-\d+)")
_SCALER = re.compile(r"(.+)-\d+")


def events(found: Iterable[Object], job: str = "") -> list[EventView]:
    """Of this job, or of all jobs; what is about something else is left out."""
    views = [_view(event) for event in sorted(found, key=_turn)]
    return [view for view in views if view is not None and job in ("", view["job"])]


def _view(event: Object) -> EventView | None:
    about = event.get("involvedObject") or {}
    job = job_of(str(about.get("kind") or ""), str(about.get("name") or ""))
    if not job:
        return None
    count = int(event.get("count") or 1)
    again = f" (x{count})" if count > 1 else ""
    return {
        "time": time_text(_time(event)),
        "source": f"{about['kind'].lower()}/{about['name']}",
        "kind": str(event.get("type") or "Normal"),
        "reason": str(event.get("reason") or ""),
        "message": f"{' '.join(str(event.get('message') or '').split())}{again}",
        "namespace": str(about.get("namespace") or event["metadata"]["namespace"]),
        "job": job,
    }


def job_of(kind: str, name: str) -> str:
    """The job that an object is, or belongs to; "" for none of ours."""
    if kind in _JOBS:
        return name
    pattern = _POD if kind == "Pod" else _SCALER if kind in _SCALERS else None
    match = pattern.fullmatch(name) if pattern is not None else None
    return match[1] if match else ""


def _turn(event: Object) -> tuple[int, int]:
    """Many have whole seconds only; within one, the API server's own order counts."""
    version = str(event["metadata"].get("resourceVersion") or "0")
    return int(_time(event)), int(version) if version.isdecimal() else 0


def _time(event: Object) -> float:
    """Of its last occurrence; events of the newer API have that in other places."""
    series = event.get("series") or {}
    for text in (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        event["metadata"].get("creationTimestamp"),
    ):
        if text:
            return seconds_of(str(text))
    return 0.0
