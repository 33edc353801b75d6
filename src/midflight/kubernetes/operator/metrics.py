"""The operator's metrics, in the text format that Prometheus reads.

What can be counted at any moment is in `Figures`. What happens once is observed: how long a pass
over a job took, and how long a scale operation took from its request to its end. A job has series
of its own, with its namespace and name, as long as there are not too many jobs: those beyond share
one with empty labels, so sums stay right. A job that is gone keeps its series until another needs
the room.
"""

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from midflight.controller.state import OPEN, Job
from midflight.monitoring.text_format import head, label_text, single

MOST_JOBS = 500  # that have their number of restarts
MOST_SERIES = 200  # jobs that have histograms and counters
PASS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SCALE_SECONDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OTHERS = ("", "")

Key = tuple[str, str]  # namespace and name of a job


@dataclass(frozen=True)
class Figures:
    """A dictionary has one value for each label."""

    leading: bool
    jobs: dict[str, int]  # by phase
    pods: int
    reconciles: int
    failures: int
    requests: int
    restarts: Mapping[Key, int] = field(default_factory=dict)


class Histogram:
    def __init__(
        self, name: str, about: str, labels: tuple[str, ...], bounds: tuple[float, ...]
    ) -> None:
        """`labels` come after the namespace and the name of the job."""
        self._name = name
        self._about = about
        self._labels = ("namespace", "job", *labels)
        self._bounds = bounds
        self._counts: dict[tuple[str, ...], list[int]] = {}  # of each bucket
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, values: tuple[str, ...], seconds: float) -> None:
        counts = self._counts.setdefault(values, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[values] = self._sums.get(values, 0.0) + seconds

    def forget(self, job: Key) -> None:
        for values in [each for each in self._counts if each[:2] == job]:
            del self._counts[values], self._sums[values]

    def lines(self) -> Iterator[str]:
        yield from head(self._name, "histogram", self._about)
        for values in sorted(self._counts):
            said = label_text(self._labels, values)
            total = 0
            for bound, count in zip((*self._bounds, "+Inf"), self._counts[values], strict=True):
                total += count
                yield f'{self._name}_bucket{{{said},le="{bound}"}} {total}'
            yield f"{self._name}_sum{{{said}}} {self._sums[values]:.6f}"
            yield f"{self._name}_count{{{said}}} {total}"


class Counter:
    def __init__(self, name: str, about: str, labels: tuple[str, ...]) -> None:
        """`labels` come after the namespace and the name of the job."""
        self._name = name
        self._about = about
        self._labels = ("namespace", "job", *labels)
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, values: tuple[str, ...]) -> None:
        self._counts[values] = self._counts.get(values, 0) + 1

    def forget(self, job: Key) -> None:
        for values in [each for each in self._counts if each[:2] == job]:
            del self._counts[values]

    def lines(self) -> Iterator[str]:
        yield from head(self._name, "counter", self._about)
        for values, count in sorted(self._counts.items()):
            yield f"{self._name}{{{label_text(self._labels, values)}}} {count}"


class Metrics:
    def __init__(self) -> None:
        self._restarts = Counter(
            "midflight_instance_restarts_total",
            "Launchers, masters and workers that were started again, for whatever reason",
            ("role",),
        )
        self._passes = Histogram(
            "midflight_reconcile_duration_seconds", "Time of a pass over a job", (), PASS_SECONDS
        )
        self._scales = Histogram(
            "midflight_scale_duration_seconds",
            "Time of a scale operation, from its request to its end",
            ("kind", "outcome"),
            SCALE_SECONDS,
        )
        self._all = (self._restarts, self._passes, self._scales)
        self._jobs: set[Key] = set()  # with series of their own
        self._gone: dict[Key, None] = {}  # of those, in the order in which they ended

    @contextmanager
    def reconciling(self, job: Key) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._passes.observe(self._series(job), time.monotonic() - began)

    def saved(self, before: Job, after: Job) -> None:
        """Observes what happened between two states of a job: scale operations that came to their
        end, and instances that were started again."""
        job = (after.spec.namespace, after.spec.name)
        for name, instance in after.instances.items():
            former = before.instances.get(name)
            if former is not None and instance.attempt > former.attempt > 0:
                self._restarts.add((*self._series(job), instance.role.value))
        over = {each.id for each in before.operations if each.progress not in OPEN}
        for each in after.operations:
            if each.ended_at is not None and each.id not in over:
                values = (*self._series(job), each.kind, each.progress.value)
                self._scales.observe(values, max(each.ended_at - each.created_at, 0.0))

    def forget(self, job: Key) -> None:
        """Its series stay until another job needs the room."""
        if job in self._jobs:
            self._gone[job] = None

    def text(self, figures: Figures) -> str:
        lines = [*_current(figures), *(line for each in self._all for line in each.lines())]
        return "\n".join(lines) + "\n"

    def _series(self, job: Key) -> Key:
        self._gone.pop(job, None)  # it has come back
        if job not in self._jobs and len(self._jobs) >= MOST_SERIES:
            if not self._gone:
                return _OTHERS
            self._drop(next(iter(self._gone)))
        self._jobs.add(job)
        return job

    def _drop(self, job: Key) -> None:
        del self._gone[job]
        self._jobs.discard(job)
        for each in self._all:
            each.forget(job)


def _current(figures: Figures) -> Iterator[str]:
    leading = int(figures.leading)
    yield from single("midflight_leading", "gauge", "1 if this operator leads", leading)
    yield from head("midflight_jobs", "gauge", "Jobs by phase")
    for phase, number in sorted(figures.jobs.items()):
        yield f'midflight_jobs{{phase="{phase}"}} {number}'
    yield from head("midflight_job_restarts", "gauge", "Restarts of a job, of the jobs with most")
    yield from _restarts(figures.restarts)
    yield from single("midflight_pods", "gauge", "Pods of all jobs", figures.pods)
    yield from single(
        "midflight_reconciles_total", "counter", "Passes over a job", figures.reconciles
    )
    yield from single("midflight_failures_total", "counter", "Passes that failed", figures.failures)
    yield from single("midflight_requests_total", "counter", "Requests sent", figures.requests)


def _restarts(found: Mapping[Key, int]) -> Iterable[str]:
    most = sorted(((n, job) for job, n in found.items() if n), key=lambda one: (-one[0], one[1]))
    return [
        f"midflight_job_restarts{{{label_text(('namespace', 'job'), job)}}} {n}"
        for n, job in most[:MOST_JOBS]
    ]
