"""Listing the jobs of a cluster, quickly: both kinds and the pods of their chiefs, all at once.

They come from the API server's memory, which is milliseconds behind: to read and convert 500 jobs
from its store would take it longer than all the rest. While it answers, what shows them is loaded;
of its answer only what is shown is decoded.
"""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypedDict

from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object, selector
from midflight.kubernetes.api.errors import NoSuchKind
from midflight.kubernetes.api.paths import JOB_KINDS, path
from midflight.kubernetes.api.stdlib_http import StdlibHttp
from midflight.protocol.views import JobSummary

CHIEFS = ("launcher", "master")
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


class _Chief(TypedDict, total=False):
    metadata: _Meta
    status: dict[str, Any]


class _Objects(TypedDict, total=False):
    items: list[_Object]


class _Chiefs(TypedDict, total=False):
    items: list[_Chief]


def jobs(connection: Connection, namespace: str, kinds: Sequence[str]) -> list[JobSummary]:
    """`kinds`: types of jobs; `namespace`: `*` for all."""
    quick = StdlibHttp(connection.settings)
    with ThreadPoolExecutor(len(kinds) + 1) as pool, _without_collecting():

        def ask(kind: str, **params: str) -> "Future[list[Object]]":
            query = {**_CACHED, **params}
            return pool.submit(_items, connection, quick, (kind, namespace), query)

        listed = {kind: ask(JOB_KINDS[kind]) for kind in kinds}
        chiefs = ask("Pod", labelSelector=selector({names.ROLE: CHIEFS}))
        from midflight.kubernetes.verbs import summary

        places = {_key(pod["metadata"]): _host(pod) for pod in chiefs.result()}
        shown = []
        for kind, answer in listed.items():
            for obj in answer.result():
                meta = obj["metadata"]
                chief = f"{meta['namespace']}/{summary.chief_name(meta['name'], kind)}"
                shown.append(summary.summary(obj, kind, places.get(chief, ""), time.time()))
        return shown


def _items(
    connection: Connection, quick: StdlibHttp, what: tuple[str, str], params: Mapping[str, str]
) -> list[Object]:
    """`what`: kind and namespace."""
    if (found := _quick_items(quick, what, params)) is not None:
        return found
    try:
        return connection.items(*what, **params)
    except NoSuchKind:
        if what[0] == names.TRAININGJOB:
            raise connection.no_resources() from None
        return []  # nobody here has that kind, so nobody has a job of it


def _quick_items(
    quick: StdlibHttp, what: tuple[str, str], params: Mapping[str, str]
) -> list[Any] | None:
    import msgspec

    answer = quick.get(path(*what), params)
    if answer is None:
        return None
    try:
        shape: Any = _Chiefs if what[0] == "Pod" else _Objects
        return list(msgspec.json.decode(answer, type=shape).get("items") or ())
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


def _key(meta: Mapping[str, Any]) -> str:
    return f"{meta['namespace']}/{meta['name']}"


def _host(pod: Object) -> str:
    return str((pod.get("status") or {}).get("hostIP") or "")
