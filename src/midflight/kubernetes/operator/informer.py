"""An informer keeps the objects of one kind as the API server has them: one list, then a watch.

Whatever breaks the watch (the server restarts, the version is too old), it lists again, after a
growing pause. `keep` makes what is kept of an object; `changed` is called with every key that is
new, changed or gone, and with what is kept now. A `JobIndex` finds objects by the job they belong
to, and wakes that job.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from midflight import backoff
from midflight.deadlines import WATCH_SILENCE
from midflight.errors import MidflightError
from midflight.kubernetes.api.async_connection import AsyncConnection, Object

T = TypeVar("T")
Key = tuple[str, str]  # namespace, name
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0

log = logging.getLogger("midflight.operator")


@dataclass(frozen=True)
class _Read(Generic[T]):
    key: Key
    version: int
    item: T | None


class Informer(Generic[T]):
    def __init__(
        self,
        api: AsyncConnection,
        kind: str,
        namespace: str,
        keep: Callable[[Object], T],
        changed: Callable[[Key, T | None], None],
        labels: dict[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.items: dict[Key, T] = {}
        self.synced = asyncio.Event()
        self._versions: dict[Key, int] = {}  # of each item
        self._newest = 0  # of all that the API server has told
        self._api = api
        self._namespace = namespace
        self._keep = keep
        self._changed = changed
        self._labels = labels

    async def run(self) -> None:
        pauses = backoff.pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                await self._list()
                pauses = backoff.pauses(FIRST_PAUSE, LONGEST_PAUSE)
                await self._follow()
            except TimeoutError:
                log.warning("the watch on %s was silent for too long; listing again", self.kind)
            except MidflightError as error:
                log.warning("watching %s: %s; trying again", self.kind, error)
                await asyncio.sleep(next(pauses))

    def put(self, obj: Object) -> None:
        """What the API server has just answered: nobody has to wait for the watch to say so.

        The watch may have been faster, and may have said more by now: of an object that it does
        not have any more, whatever is older than the newest change.
        """
        if _version(obj) <= self._versions.get(_key(obj), self._newest):
            return
        self._store(obj)

    async def _list(self) -> None:
        found, self._version = await self._api.list(
            self.kind, self._namespace, self._labels, self._read
        )
        fresh = {each.key: each.item for each in found if each.item is not None}
        gone = self.items.keys() - fresh.keys()
        self.items = fresh
        self._versions = {each.key: each.version for each in found if each.key in fresh}
        self._newest = max([*self._versions.values(), _number(self._version)])
        self.synced.set()
        for key, item in fresh.items():
            self._changed(key, item)
        for key in gone:
            self._changed(key, None)

    def _read(self, obj: Object) -> "_Read[T]":
        """Without an item, if there is no reading it: one object must not end the informer."""
        item = None
        try:
            item = self._keep(obj)
        except Exception:  # whatever is wrong with it, the others must be seen
            log.exception("a bug: the %s %s/%s is not seen", self.kind, *_key(obj))
        return _Read(_key(obj), _version(obj), item)

    async def _follow(self) -> None:
        changes = self._api.watch(self.kind, self._namespace, self._version, self._labels)
        try:
            while True:
                async with asyncio.timeout(WATCH_SILENCE):
                    what, obj = await anext(changes)
                self._take(what, obj)
        except StopAsyncIteration:
            return
        finally:
            await changes.aclose()  # type: ignore[attr-defined]

    def _take(self, what: str, obj: Object) -> None:
        key = _key(obj)
        self._newest = max(self._newest, _version(obj))
        if what == "DELETED":
            self._drop(key)
        elif what in ("ADDED", "MODIFIED"):
            self._store(obj)

    def _store(self, obj: Object) -> None:
        read = self._read(obj)
        if read.item is None:
            self._drop(read.key)
            return
        self.items[read.key], self._versions[read.key] = read.item, read.version
        self._changed(read.key, read.item)

    def _drop(self, key: Key) -> None:
        self.items.pop(key, None)
        self._versions.pop(key, None)
        self._changed(key, None)


class JobIndex(Generic[T]):
    """What an informer keeps, by job."""

    def __init__(self, job_of: Callable[[T], str], wake: Callable[[Key], None]) -> None:
        self._job_of = job_of
        self._wake = wake
        self._found: dict[Key, dict[str, T]] = defaultdict(dict)
        self._jobs: dict[Key, Key] = {}  # of each object, the job that it is found by

    def of(self, job: Key) -> Mapping[str, T]:
        """The objects of one job, by name."""
        return self._found.get(job, {})

    def jobs(self) -> list[Key]:
        """Those with any object."""
        return list(self._found)

    def update(self, key: Key, item: T | None) -> None:
        """`item`: what the object is now; None if it is gone."""
        namespace, name = key
        former = self._jobs.pop(key, None)
        if former is not None:
            self._found[former].pop(name, None)
            if not self._found[former]:
                del self._found[former]
            self._wake(former)
        if item is not None:
            job = (namespace, self._job_of(item))
            self._found[job][name] = item
            self._jobs[key] = job
            if job != former:
                self._wake(job)


def _key(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace") or "", meta["name"]


def _version(obj: Object) -> int:
    """Which of two states of an object is the later one."""
    return _number(str(obj["metadata"].get("resourceVersion")))


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
