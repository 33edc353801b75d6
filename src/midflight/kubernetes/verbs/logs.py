"""Logs of a job's pods, through the API server: one pod's, or all of them merged by time.

Following goes on over what a pod does first (its init containers), over new attempts of an instance
(another pod of the same name), over new workers and over a connection that breaks, until the job is
over. For that every line is asked for with its time, which tells what was seen already.
"""

import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from midflight.backends.local.interface import LogQuery
from midflight.errors import MidflightError, NotFound, Refused, Unreachable
from midflight.kubernetes import names
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.api.paths import path
from midflight.kubernetes.resources.kept_logs import by_instance
from midflight.kubernetes.verbs import pod_status

LOOK = 0.5  # seconds between two looks at what has changed, when there is nothing to read
TOGETHER = 50  # pods whose logs are read at once; those of more are read one by one
FOLLOWED = 90  # pods that are followed at once; a connection each
Line = tuple[bytes, bytes, bytes]  # time, pod, text with its end


@dataclass(frozen=True)
class PodLogs(LogQuery):
    container: str = ""  # "" for the one that matters
    previous: bool = False  # what is kept of the pod that failed before, with `all` of each

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "PodLogs":
        """From texts, as the command line and the HTTP API have them."""
        return cls(
            instance=query.get("instance", ""),
            all=query.get("all") == "true",
            follow=query.get("follow") == "true",
            tail=int(query.get("tail", -1)),
            since=float(query.get("since", 0.0)),
            timestamps=query.get("timestamps") == "true",
            container=query.get("container", ""),
            previous=query.get("previous") == "true",
        )


@dataclass(frozen=True)
class Source:
    """Where to look for the pods of a job, again and again, and whether it is over."""

    connection: Connection
    namespace: str
    job: str
    chief: str
    pods: Callable[[], Sequence[Object]]
    over: Callable[[], bool]


def read(source: Source, query: PodLogs) -> Iterator[bytes]:
    if query.previous:
        return iter(_previous(source, query))
    pods = {pod["metadata"]["name"]: pod for pod in source.pods()}
    if query.all:
        return _all(source, query, pods)
    name = query.instance or source.chief
    if name not in pods:
        there = ", ".join(pods) or "none"
        raise NotFound(
            f"instance {name} has no pod now, and its log went with it (but for what --previous "
            f"shows, if it failed); pods of this job: {there}"
        )
    if query.follow:
        return _following(source, query, name)
    if (container := pod_status.begun(pods[name], query.container)) is None:
        return iter(())
    return _pieces(source, name, {**_span(query), **_params(query, container)})


def _previous(source: Source, query: PodLogs) -> list[bytes]:
    """What the operator has kept."""
    name = names.logs_map(source.job)
    kept = by_instance(
        (source.connection.find("ConfigMap", source.namespace, name) or {}).get("data") or {}
    )
    wanted = query.instance or source.chief
    if not query.all and wanted not in kept:
        raise NotFound(
            f"no log of a former pod of {wanted} is kept; instances with one: "
            + (", ".join(kept) or "none")
        )
    found: list[bytes] = []
    for instance, text in kept.items():
        if query.all or instance == wanted:
            lines = text.encode().splitlines(keepends=True)
            lines = lines[-query.tail :] if query.tail > 0 else lines if query.tail else []
            found += (
                [b"[%s] %s" % (instance.encode(), each) for each in lines] if query.all else lines
            )
    return found


def _params(query: LogQuery, container: str) -> dict[str, str]:
    stamps = {"timestamps": "true"} if query.timestamps else {}
    return {"container": container, **stamps}


def _span(query: LogQuery) -> dict[str, str]:
    tail = {"tailLines": str(query.tail)} if query.tail >= 0 else {}
    since = {"sinceTime": _moment(query.since)} if query.since > 0 else {}
    return {**tail, **since}


def _pieces(source: Source, pod: str, params: Mapping[str, str]) -> Iterator[bytes]:
    where = path("Pod", source.namespace, pod, "log")
    return source.connection.pieces(where, params, f"read the log of {pod}")


def _lines(source: Source, pod: str, params: Mapping[str, str]) -> Iterator[Line]:
    """With their times; a last one without an end comes as it is."""
    rest = b""
    name = pod.encode()
    for piece in _pieces(source, pod, {**params, "timestamps": "true"}):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            when, _, text = line.partition(b" ")
            yield when, name, text + b"\n"
    if rest:
        when, _, text = rest.partition(b" ")
        yield when, name, text


# --- one pod, as it goes on -----------------------------------------------------------------------


def _following(source: Source, query: PodLogs, name: str) -> Iterator[bytes]:
    for when, _, text in _followed(source, query, name, _span(query)):
        yield b"%s %s" % (when, text) if query.timestamps else text


def _followed(
    source: Source, query: PodLogs, name: str, span: Mapping[str, str], last: bytes = b""
) -> Iterator[Line]:
    """`last`: the time of the last line that was seen already."""
    read: set[tuple[str, str]] = set()  # uid and container of what was read to its end
    while True:
        over = source.over()  # asked before reading: nothing comes afterwards
        pod = source.connection.find("Pod", source.namespace, name)
        container = None if pod is None else pod_status.begun(pod, query.container)
        if pod is not None and container is not None:
            key = (pod["metadata"]["uid"], container)
            if key not in read:
                params = {"container": container, "follow": "true", **span}
                for line in _unbroken(source, name, params, last):
                    last = line[0]
                    yield line
                read.add(key)
                span = {}
                continue
        if over:
            return
        time.sleep(LOOK)


def _unbroken(
    source: Source, name: str, params: dict[str, str], last: bytes = b""
) -> Iterator[Line]:
    """A log to its end, taken up again where it broke off."""
    while True:
        try:
            for line in _lines(source, name, params):
                if line[0] > last:
                    last = line[0]
                    yield line
            return
        except Unreachable:
            time.sleep(LOOK)
            params = {"container": params["container"], "follow": "true"}
            if last:
                params["sinceTime"] = f"{last[:19].decode()}Z"
        except (NotFound, Refused):
            return  # the pod is gone


# --- all of them ----------------------------------------------------------------------------------


def _all(source: Source, query: PodLogs, pods: Mapping[str, Object]) -> Iterator[bytes]:
    last: dict[bytes, bytes] = {}
    for line in _merged(source, query, pods):
        last[line[1]] = line[0]
        yield _words(line, query)
    if query.follow:
        for line in _Together(source, query, last).lines():
            yield _words(line, query)


def _merged(source: Source, query: PodLogs, pods: Mapping[str, Object]) -> Iterator[Line]:
    logs: list[Iterator[Line]] = []
    for name, pod in pods.items():
        if (container := pod_status.begun(pod, query.container)) is not None:
            log = _lines(source, name, {"container": container, **_span(query)})
            logs.append(log if len(pods) <= TOGETHER else iter(list(log)))
    merged = heapq.merge(*logs, key=lambda line: line[0])
    return merged if query.tail < 0 else iter(deque(merged, maxlen=query.tail))


def _words(line: Line, query: PodLogs) -> bytes:
    when, name, text = line
    date = when + b" " if query.timestamps else b""
    end = b"" if text.endswith(b"\n") else b"\n"
    return b"[%s] %s%s%s" % (name, date, text, end)


class _Together:
    """Follows every pod in a thread of its own, and looks for new ones."""

    def __init__(self, source: Source, query: PodLogs, last: Mapping[bytes, bytes]) -> None:
        self._source = source
        self._query = query
        self._last = last
        self._queue: queue.Queue[Line | MidflightError] = queue.Queue(10_000)
        self._threads: dict[str, threading.Thread] = {}

    def lines(self) -> Iterator[Line]:
        over = False
        while True:
            if not over:
                over = self._source.over()
                self._look()
            try:
                while True:
                    item = self._queue.get(timeout=LOOK)
                    if isinstance(item, MidflightError):
                        raise item
                    yield item
            except queue.Empty:
                if over:
                    return

    def _look(self) -> None:
        for pod in self._source.pods():
            name = pod["metadata"]["name"]
            if name not in self._threads:
                if len(self._threads) == FOLLOWED:
                    raise Refused(
                        f"--all follows at most {FOLLOWED} pods at once; choose one with -i"
                    )
                thread = threading.Thread(target=self._follow, args=(name,), daemon=True)
                self._threads[name] = thread
                thread.start()

    def _follow(self, name: str) -> None:
        last = self._last.get(name.encode(), b"")
        span = {"sinceTime": f"{last[:19].decode()}Z"} if last else {}
        try:
            for line in _followed(self._source, self._query, name, span, last):
                self._queue.put(line)
        except MidflightError as error:
            self._queue.put(error)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
