"""`midflight.Client`: submits, scales, watches and deletes jobs, on this machine or a cluster.

Each call is one verb, with the defaults of the command line, and blocks until it is answered; it
needs no event loop and may be made inside one. The server is found or started at each call, so a
client outlives it. On a cluster the calls go to the API server.
"""

import codecs
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from midflight import long_poll
from midflight.api import arguments, results
from midflight.api.arguments import JobArguments, in_arguments
from midflight.api.results import Event, JobDetails, JobInfo, Operation
from midflight.cli import contexts
from midflight.cli.cluster import cluster_of
from midflight.deadlines import JOB_GONE, RESIZE
from midflight.errors import JobFailed, NotFound
from midflight.home import home
from midflight.protocol import codec
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobView

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_ALL = "*"
# Inside the class, `list` is the verb.
_Jobs = list[JobInfo]
_Events = list[Event]


class ScaleArguments(TypedDict, total=False):
    timeout: float | str  # then the change is undone (1m)
    partial: bool  # keep the workers that were ready in time, instead of all or nothing
    wait: bool  # for the outcome (default: yes)


class LogArguments(TypedDict, total=False):
    instance: str  # default: the chief
    all: bool  # instances, with their names
    follow: bool  # until the job has ended
    tail: int  # only so many lines
    since: float | str  # only lines of the last so many seconds, or "5m"
    timestamps: bool


class Client:
    """`namespace`: of its jobs. `config`: a kubeconfig; else as `midflight context` says."""

    def __init__(self, *, namespace: str = "", config: str = "") -> None:
        chosen = contexts.current(config)
        self.namespace = namespace or contexts.namespace(config)
        self._cluster = cluster_of(chosen)
        self._connect()  # what is wrong with that is said here

    def _connect(self) -> ClusterApi:
        if self._cluster is not None:
            return self._cluster
        from midflight.server.startup import ensure

        return ensure(home(os.environ))

    def close(self) -> None:
        """Only a connection to a cluster is kept open between two calls."""
        if self._cluster is not None:
            self._cluster.connection.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- jobs -------------------------------------------------------------------------------

    def submit(
        self, name: str, command: str | Sequence[str], **job: "Unpack[JobArguments]"
    ) -> JobDetails:
        """Hand a job over and return. A text is for a shell, a list of words is left as it is."""
        with in_arguments():
            on_cluster = self._cluster is not None
            spec = arguments.spec(name, command, job, self.namespace, on_cluster)
            return results.job_details(self._connect().submit(codec.encode(spec)))

    def list(self, kind: str = "", *, all_namespaces: bool = False) -> _Jobs:
        """Newest first."""
        with in_arguments():
            where = _ALL if all_namespaces else self.namespace
            found = self._connect().jobs(where, arguments.kind(kind))
        newest_first = sorted(found, key=lambda job: job["createTime"], reverse=True)
        return [results.job_info(job) for job in newest_first]

    def get(self, name: str) -> JobDetails:
        return results.job_details(self._job(self._connect(), name))

    def wait(
        self,
        name: str,
        until: Literal["running", "finished"] = "finished",
        timeout: float | str = 0.0,
    ) -> JobDetails:
        """The job once it is so, or has ended. `timeout` 0: however long it takes.

        Raises JobFailed if it has failed, and TimedOut.
        """
        api = self._connect()
        self._job(api, name)
        seconds = arguments.seconds(timeout)
        job = long_poll.until(api, self._connect, self.namespace, name, until, seconds)
        if job is None:
            raise JobFailed(f"{name} was deleted before it was {until}")
        found = results.job_details(job)
        if found.is_over and not found.succeeded:
            raise JobFailed(f"{name} has failed: {found.reason or 'see its logs'}")
        return found

    def delete(self, name: str, *, wait: bool = True, timeout: float | str = JOB_GONE) -> None:
        """End all its instances and remove its folder. `wait`: until that is done."""
        api = self._connect()
        self._job(api, name)
        api.delete(self.namespace, name)
        if wait:
            seconds = arguments.seconds(timeout)
            long_poll.until(api, self._connect, self.namespace, name, "gone", seconds)

    # --- while it trains --------------------------------------------------------------------

    def scale(
        self,
        name: str,
        to: int | None = None,
        *,
        add: int = 0,
        remove: int | Sequence[str] = 0,
        **more: "Unpack[ScaleArguments]",
    ) -> Operation:
        """Another number of workers; `remove` takes names too.

        Raises JobFailed if the change was undone.
        """
        arguments.check_known("scale", more, ScaleArguments)
        with in_arguments():
            timeout, partial = more.get("timeout", RESIZE), more.get("partial", False)
            wish = arguments.wish(to, add, remove, timeout, partial)
            api = self._connect()
            self._job(api, name)
            operation = api.scale(self.namespace, name, wish)
            if more.get("wait", True):
                for changed in long_poll.changes(
                    api, self._connect, self.namespace, name, operation
                ):
                    operation = changed
            if operation["progress"] == "failed":
                raise JobFailed(operation["message"] or f"{operation['id']} has failed")
        return results.operation(operation)

    def logs(self, name: str, **which: "Unpack[LogArguments]") -> Iterator[str]:
        """Line by line; with `follow` as they come."""
        arguments.check_known("logs", which, LogArguments)
        api = self._connect()
        job = self._job(api, name)
        query = _query(which)
        if which.get("follow") and not job["instances"]:
            self.wait(name, "running")
        return _lines(api.logs(self.namespace, name, query))

    def events(self, name: str = "") -> _Events:
        """Oldest first; of the whole namespace without a name."""
        api = self._connect()
        if name:
            self._job(api, name)
        return [results.event(view) for view in api.events(self.namespace, name)]

    def _job(self, api: ClusterApi, name: str) -> JobView:
        try:
            return api.job(self.namespace, name)
        except NotFound:
            raise NotFound(
                f"no job is named {name!r} in namespace {self.namespace}; see list()"
            ) from None


def _query(which: LogArguments) -> dict[str, str]:
    query = {name: "true" for name in ("all", "follow", "timestamps") if which.get(name)}
    if which.get("instance"):
        query["instance"] = which["instance"]
    if "tail" in which:
        query["tail"] = str(which["tail"])
    if "since" in which:
        query["since"] = str(time.time() - arguments.seconds(which["since"]))
    return query


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        yield from lines
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
