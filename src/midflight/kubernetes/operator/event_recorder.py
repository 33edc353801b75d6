"""Records what happened as Kubernetes Events on the job or on the pod concerned.

They are for people: one that cannot be written is dropped, and nothing waits for them. The same
message about the same object is written once a minute.
"""

import asyncio
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

from midflight.controller.commands import Record
from midflight.errors import MidflightError
from midflight.kubernetes.api.async_connection import AsyncConnection, Object
from midflight.kubernetes.resources.pod import Pod
from midflight.kubernetes.resources.status import time_text

COMPONENT = "midflight-operator"
AGAIN = 60.0  # seconds
LONGEST = 1000  # characters of a message; Kubernetes takes 1024
MOST_WAITING = 500
SHARE = 100  # of those, of one namespace
_REMEMBERED = 2000

log = logging.getLogger("midflight.operator")


class EventRecorder:
    def __init__(self, api: AsyncConnection, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._queue: asyncio.Queue[Object] = asyncio.Queue(MOST_WAITING)
        self._waiting: Counter[str] = Counter()  # by namespace
        self._complained = float("-inf")
        self._said: OrderedDict[tuple[str, ...], float] = OrderedDict()

    def note(self, obj: Mapping[str, Any], record: Record) -> None:
        event = event_of(obj, record, self._clock(), secrets.token_hex(6))
        about = (record.key, record.source, record.reason, record.message)
        now = self._clock()
        if now - self._said.get(about, float("-inf")) < AGAIN:
            return
        self._said[about] = now
        self._said.move_to_end(about)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        namespace = event["metadata"]["namespace"]
        if self._queue.full() or self._waiting[namespace] >= SHARE:
            if now - self._complained > AGAIN:
                self._complained = now
                log.warning("more events than can be written: some are dropped")
            return
        self._waiting[namespace] += 1
        self._queue.put_nowait(event)

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            self._waiting[event["metadata"]["namespace"]] -= 1
            self._waiting += Counter()  # without those that have none
            try:
                await self._api.create(event)
            except MidflightError as error:
                log.info("an event was not written: %s", error)


def on_job_without_pod(record: Record, pods: Container[str]) -> Record:
    """An Event on a pod that does not exist is found by nobody: the job has it then."""
    kind, _, name = record.source.partition("/")
    if kind != "instance" or name in pods:
        return record
    job = record.key.partition("/")[2]
    return replace(record, source=f"job/{job}", message=f"{name}: {record.message}")


def with_last_words(record: Record, pods: Mapping[str, Pod]) -> Record:
    """The end of the log of an instance that failed: the log itself goes with its pod."""
    pod = pods.get(record.source.partition("/")[2])
    if record.reason != "Failed" or pod is None or pod.last_line == pod.message.strip():
        return record
    tail = pod.message.strip()[-(LONGEST - len(record.message) - 1) :]
    return replace(record, message=f"{record.message}\n{tail}")


def event_of(obj: Mapping[str, Any], record: Record, now: float, mark: str) -> Object:
    meta = obj["metadata"]
    kind, _, name = record.source.partition("/")
    about: Object = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }
    if kind == "instance":
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": meta["namespace"], "name": name}
    at = time_text(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about['name']}.{mark}", "namespace": meta["namespace"]},
        "involvedObject": about,
        "type": record.kind,
        "reason": record.reason,
        "message": record.message[:LONGEST],
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
