"""Lists the jobs of a cluster, quickly: both kinds at once, each with the summary in its status.

They come from the API server's memory, which is milliseconds behind: reading and converting 500
jobs from its store would take longer than all the rest. Only what is shown is decoded.
"""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypedDict

from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.api.paths import path
from midflight.kubernetes.names import JOB_KINDS
from midflight.protocol.views import JobSummary

_CACHED = {"resourceVersion": "0"}


class _Meta(TypedDict, total=False):
    """Without what says who has changed which field, which is half of an object."""

    name: str
    namespace: str
    uid: str
    creationTimestamp: str
    labels: dict[str, str]
    annotations: dict[str, str]


class _Object(TypedDict, total=False):
    metadata: _Meta
    spec: dict[str, Any]
    status: dict[str, Any]


class _Objects(TypedDict, total=False):
    items: list[_Object]


def jobs(connection: Connection, namespace: str, kinds: Sequence[str]) -> list[JobSummary]:
    """`kinds`: types of jobs; `namespace`: `*` for all."""
    with ThreadPoolExecutor(len(kinds)) as pool, _without_collecting():
        listed = {
            kind: pool.submit(_items, connection, JOB_KINDS[kind], namespace) for kind in kinds
        }
        from midflight.kubernetes.resources.summary import summary  # while the server answers

        now = time.time()
        return [
            summary(obj, kind, now) for kind, answer in listed.items() for obj in answer.result()
        ]


def _items(connection: Connection, kind: str, namespace: str) -> Sequence[Mapping[str, Any]]:
    if (found := _quick_items(connection, path(kind, namespace))) is not None:
        return found
    try:
        return connection.items(kind, namespace, **_CACHED)
    except NoSuchKind:
        if kind == names.TRAININGJOB:
            raise connection.no_resources() from None
        return []  # nobody here has that kind, so nobody has a job of it


def _quick_items(connection: Connection, where: str) -> list[_Object] | None:
    import msgspec

    answer = connection.get_quickly(where, _CACHED)
    if answer is None:
        return None
    try:
        return list(msgspec.json.decode(answer, type=_Objects).get("items") or ())
    except msgspec.DecodeError:
        return None  # an object that is like no other: decoded in full, it is no trouble


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Many objects are made at once, and none of them is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
