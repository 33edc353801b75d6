"""What the server's metrics say, rendered from states: no process, no clock."""

from dataclasses import replace

from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Job, Phase
from midflight.flight.totals import Totals
from midflight.monitoring.text_format import sample
from midflight.server.metrics import KEPT_SECONDS, Requests, Server, shown, text
from tests.metric_text import parsed, value

SERVER = Server("0.1.0", 1e9, {}, 1, 0, 1, 0, 0.5)
NOW = 1e9


def job(name: str = "bert", namespace: str = "default") -> Job:
    spec = Spec(Kind.ETJOB, name, "python train.py", namespace, min_workers=1)
    return Job(spec, uid=name, created_at=NOW, wanted=1, phase=Phase.RUNNING)


def cluster(*jobs: Job) -> Cluster:
    return Cluster(jobs={each.key: each for each in jobs})


def test_quotes_backslashes_and_newlines_in_a_label_are_escaped() -> None:
    hostile = 'a"b\\c\nd\\n} 1\n# TYPE x counter'
    odd = job(hostile)
    found = parsed(text(cluster(odd), [odd], {hostile: Totals(step=3)}, SERVER))
    assert value(found, "midflight_job_steps_total", namespace="default", job=hostile) == 3
    assert sample("m", {"a": 'x"\n\\'}, 1) == r'm{a="x\"\n\\"} 1'


def test_a_job_that_has_ended_keeps_its_series_until_they_are_scraped() -> None:
    ended = replace(job(), phase=Phase.SUCCEEDED, ended_at=NOW)
    state = cluster(ended, job("gpt"))
    assert [each.uid for each in shown(state, NOW + KEPT_SECONDS)] == ["bert", "gpt"]
    assert [each.uid for each in shown(state, NOW + KEPT_SECONDS + 1)] == ["gpt"]
    found = parsed(text(state, shown(state, NOW + KEPT_SECONDS + 1), {}, SERVER))
    assert value(found, "midflight_jobs", phase="SUCCEEDED") == 1, "it is still counted"


def test_jobs_of_the_same_name_are_told_apart_by_their_namespace() -> None:
    jobs = [replace(job(namespace=space), uid=space) for space in ("a", "b")]
    trainings = {"a": Totals(step=1), "b": Totals(step=2)}
    found = parsed(text(cluster(*jobs), jobs, trainings, SERVER))
    steps = [value(found, "midflight_job_steps_total", namespace=n, job="bert") for n in ("a", "b")]
    assert steps == [1, 2]


def test_very_small_and_very_large_seconds_are_read_back() -> None:
    pauses = {("failure", "detect"): (1, 1e-7), ("failure", "state"): (2, 3e20)}
    found = parsed(text(cluster(job()), [job()], {"bert": Totals(pauses=pauses)}, SERVER))
    labels = {"namespace": "default", "job": "bert", "cause": "failure"}
    name = "midflight_job_pause_seconds_sum"
    assert value(found, name, **labels, phase="detect") == 1e-7
    assert value(found, name, **labels, phase="state") == 3e20


def test_a_server_without_jobs_names_all_its_metrics() -> None:
    told = text(Cluster(), [], {}, SERVER)
    parsed(told)
    assert "# TYPE midflight_job_pause_seconds summary\n" in told


def test_requests_are_counted_by_method_and_status() -> None:
    requests = Requests()
    for method, status in (("GET", 200), ("GET", 200), ("GET", 404), ("BREW", 405)):
        requests.count(method, status)
    assert requests.counts == {("GET", 200): 2, ("GET", 404): 1, ("other", 405): 1}
