"""The server's metrics as text: pure, from its jobs, their trainings and what it has counted.

Labels are bounded: `namespace` and `job` name a job that the server knows, and that has not ended
long ago; phases, causes and methods are from fixed lists. What grows is a counter, and what
Prometheus can compute (a rate, a mean) is left to it. docs/operations.md explains each metric.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from midflight.controller.state import Cluster, Job, Phase, Role, Stage
from midflight.flight.totals import Totals
from midflight.monitoring.text_format import Labels, family, single, summary

KEPT_SECONDS = 600.0  # after its end a job keeps its series so long: the last figures are scraped
METHODS = ("DELETE", "GET", "HEAD", "POST")


@dataclass(frozen=True)
class Server:
    """What the server has counted since it started."""

    version: str
    started_at: float  # in seconds since 1970
    requests: Mapping[tuple[str, int], int]  # by method and status
    passes: int
    failures: int
    saves: int
    save_failures: int
    save_seconds: float


class Requests:
    """How many were answered, by method and status."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()

    def count(self, method: str, status: int) -> None:
        self.counts[method if method in METHODS else "other", status] += 1


def shown(cluster: Cluster, now: float) -> list[Job]:
    """The jobs that have series of their own."""
    return [
        job
        for job in cluster.jobs.values()
        if not job.finished or job.ended_at is None or now - job.ended_at <= KEPT_SECONDS
    ]


def text(
    cluster: Cluster, jobs: Sequence[Job], trainings: Mapping[str, Totals], server: Server
) -> str:
    """`trainings`: by the uid of a job; one without a record, or without a training, has none."""
    followed = [(job, trainings[job.uid]) for job in jobs if job.uid in trainings]
    lines = [
        *_server(server),
        *_phases(cluster),
        *_jobs(jobs),
        *_trainings(followed),
        *_changes(followed),
    ]
    return "\n".join(lines) + "\n"


def _server(server: Server) -> Iterator[str]:
    requests = [
        ({"method": method, "code": str(status)}, count)
        for (method, status), count in sorted(server.requests.items())
    ]
    yield from family(
        "midflight_build_info", "gauge", "The version", [({"version": server.version}, 1)]
    )
    yield from single(
        "process_start_time_seconds",
        "gauge",
        "When the server started, in seconds since 1970",
        server.started_at,
    )
    yield from family("midflight_requests_total", "counter", "Requests answered", requests)
    yield from single(
        "midflight_reconciles_total", "counter", "Passes over the jobs", server.passes
    )
    yield from single("midflight_failures_total", "counter", "Passes that failed", server.failures)
    yield from summary(
        "midflight_store_save_duration_seconds",
        "Time of a write of the journal",
        [({}, server.saves, server.save_seconds)],
    )
    yield from single(
        "midflight_store_save_failures_total",
        "counter",
        "Writes of the journal that failed",
        server.save_failures,
    )


def _phases(cluster: Cluster) -> Iterator[str]:
    """All of them, so that a phase without jobs is 0."""
    found = Counter(job.phase for job in cluster.jobs.values())
    samples = [({"phase": phase.value}, found[phase]) for phase in Phase]
    yield from family("midflight_jobs", "gauge", "Jobs by phase", samples)


def _jobs(jobs: Sequence[Job]) -> Iterator[str]:
    def of_each(name: str, about: str, values: Iterable[int], kind: str = "gauge") -> Iterator[str]:
        labels = map(_names, jobs)
        return family(f"midflight_job_{name}", kind, about, zip(labels, values, strict=True))

    yield from of_each("workers", "Workers that run", map(_running, jobs))
    yield from of_each("workers_wanted", "Workers that are wanted", (j.wanted for j in jobs))
    yield from of_each("workers_min", "The fewest workers", (j.spec.least for j in jobs))
    yield from of_each("workers_max", "The most workers", (j.spec.most for j in jobs))
    restarts = (job.restarts for job in jobs)
    yield from of_each("restarts_total", "Restarts of the whole job", restarts, "counter")


def _trainings(followed: Sequence[tuple[Job, Totals]]) -> Iterator[str]:
    def of_each(name: str, about: str, values: Iterable[int], kind: str) -> Iterator[str]:
        labels = [_names(job) for job, _ in followed]
        return family(f"midflight_job_{name}", kind, about, zip(labels, values, strict=True))

    totals = [total for _, total in followed]
    yield from of_each("members", "Members that train", (t.members for t in totals), "gauge")
    yield from of_each("steps_total", "Steps completed", (t.step for t in totals), "counter")
    yield from of_each("samples_total", "Samples trained", (t.samples for t in totals), "counter")
    losses = (t.losses for t in totals)
    yield from of_each("losses_total", "Members lost that nobody let go", losses, "counter")


def _changes(followed: Sequence[tuple[Job, Totals]]) -> Iterator[str]:
    changes = [
        ({**_names(job), "cause": cause}, count)
        for job, total in followed
        for cause, count in sorted(total.changes.items())
    ]
    pauses = [
        ({**_names(job), "cause": cause, "phase": phase.replace(" ", "_")}, count, seconds)
        for job, total in followed
        for (cause, phase), (count, seconds) in sorted(total.pauses.items())
    ]
    yield from family("midflight_job_changes_total", "counter", "Worlds formed", changes)
    yield from summary("midflight_job_pause_seconds", "Pauses of members at changes", pauses)


def _names(job: Job) -> Labels:
    return {"namespace": job.spec.namespace, "job": job.spec.name}


def _running(job: Job) -> int:
    return sum(
        each.role is Role.WORKER and each.stage is Stage.RUNNING for each in job.instances.values()
    )
