"""What the operator's metrics say, read back from their text as Prometheus reads it."""

from dataclasses import replace

import pytest

from midflight.controller.events import ScaleAsked
from midflight.controller.handle import handle
from midflight.controller.state import Cluster, Job, Progress
from midflight.kubernetes.operator import metrics
from midflight.kubernetes.operator.metrics import MOST_JOBS, Figures, Metrics
from tests.kubernetes.jobs import NOW, running
from tests.metric_text import Samples, parsed, value

FIGURES = Figures(True, {"Running": 2}, 3, 4, 5, 6)
PASSES = "midflight_reconcile_duration_seconds"
SCALES = "midflight_scale_duration_seconds"


def read(told: Metrics, figures: Figures = FIGURES) -> Samples:
    return parsed(told.text(figures))


def scaled(kind: str, seconds: float, progress: Progress = Progress.SUCCEEDED) -> tuple[Job, Job]:
    """A job while it is scaled, and after that."""
    job = running()
    cluster = Cluster(jobs={job.key: job}, placed_elsewhere=True)
    cluster, _ = handle(cluster, ScaleAsked(NOW, job.key, "demo-1", kind, 1, 60.0))
    before = cluster.jobs[job.key]
    [operation] = before.operations
    over = replace(operation, progress=progress, ended_at=operation.created_at + seconds)
    return before, replace(before, operations=(over,))


def test_a_scale_operation_is_counted_once_with_its_outcome_and_duration() -> None:
    told = Metrics()
    before, after = scaled("scaleout", 7.0)
    told.saved(before, before)
    told.saved(before, after)
    told.saved(after, after)
    told.saved(*scaled("scaleout", 40.0, Progress.FAILED))
    found = read(told)
    job = {"namespace": "default", "job": "demo", "kind": "scaleout"}
    good, bad = {**job, "outcome": "succeeded"}, {**job, "outcome": "failed"}
    assert value(found, f"{SCALES}_count", **good) == value(found, f"{SCALES}_count", **bad) == 1
    assert value(found, f"{SCALES}_sum", **good) == 7
    buckets = [value(found, f"{SCALES}_bucket", **good, le=le) for le in ("5.0", "10.0", "+Inf")]
    assert buckets == [0, 1, 1]


def test_a_value_at_the_bound_of_a_bucket_is_in_it() -> None:
    told = Metrics()
    told.saved(*scaled("scalein", 10.0))
    labels = {"namespace": "default", "job": "demo", "kind": "scalein", "outcome": "succeeded"}
    assert value(read(told), f"{SCALES}_bucket", **labels, le="10.0") == 1


def test_every_pass_over_a_job_is_timed_also_one_that_fails() -> None:
    told = Metrics()
    with told.reconciling(("team", "demo")):
        pass
    with pytest.raises(OSError), told.reconciling(("team", "demo")):
        raise OSError
    assert value(read(told), f"{PASSES}_count", namespace="team", job="demo") == 2


def test_jobs_beyond_the_bound_share_a_series_and_take_the_room_of_those_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "MOST_SERIES", 2)
    told = Metrics()

    def counts(*jobs: str) -> dict[str, float]:
        for job in jobs:
            with told.reconciling(("team", job)):
                pass
        found = read(told).items()
        return {dict(k)["job"]: n for (name, k), n in found if name == f"{PASSES}_count"}

    assert counts("a", "b", "c", "d") == {"a": 1, "b": 1, "": 2}
    told.forget(("team", "a"))
    assert counts("b") == {"a": 1, "b": 2, "": 2}, "it may not have been scraped yet"
    assert counts("c") == {"b": 2, "c": 1, "": 2}
    told.forget(("team", "b"))
    assert counts("b", "d") == {"b": 3, "c": 1, "": 3}, "b has come back"


def test_every_pod_that_is_started_again_is_counted_with_its_role() -> None:
    """Only restarts of whole jobs were, and so none of an elastic job's workers."""
    told, before = Metrics(), running()
    again = {
        name: replace(each, attempt=each.attempt + 1) for name, each in before.instances.items()
    }
    told.saved(before, replace(before, instances=again))
    told.saved(replace(before, instances={}), before)  # the first time is none
    once = {"demo-worker-0": replace(again["demo-worker-0"], attempt=9)}
    told.saved(replace(before, instances=again), replace(before, instances={**again, **once}))
    name, job = "midflight_instance_restarts_total", {"namespace": "default", "job": "demo"}
    found = read(told)
    assert value(found, name, **job, role="launcher") == 1
    assert value(found, name, **job, role="worker") == len(before.instances)


def test_restarts_are_told_of_the_jobs_with_the_most_and_of_so_many_jobs_only() -> None:
    name, jobs = "midflight_job_restarts", {("team", f"job-{n}"): n for n in range(MOST_JOBS + 10)}
    found = read(Metrics(), replace(FIGURES, restarts=jobs))
    assert len([each for each in found if each[0] == name]) == MOST_JOBS
    assert value(found, name, namespace="team", job="job-509") == 509
    assert not [each for each in read(Metrics()) if each[0] == name]


def test_the_state_of_the_operator_is_told() -> None:
    found = read(Metrics())
    assert value(found, "midflight_leading") == 1
    assert value(found, "midflight_jobs", phase="Running") == 2
    assert value(found, "midflight_pods") == 3
