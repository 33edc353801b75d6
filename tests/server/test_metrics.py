"""The metrics of a real server: of its jobs, of their trainings, and its own."""

from pathlib import Path

import pytest

import midflight
from midflight.client import Client
from midflight.flight.records import (
    Begun,
    Formed,
    Lost,
    Paused,
    Place,
    Progress,
    Record,
    as_line,
)
from midflight.protocol.pause import Pause
from tests.metric_text import Samples, parsed, value
from tests.server.site import Site, ask, scrape, spec

pytestmark = pytest.mark.slow

BERT = {"namespace": "default", "job": "bert"}
PLACES = (Place("m0", "h0"), Place("m1", "h1"))
PAUSE = Pause(detect=0.5, agree=0.25, connect=1.0, state=2.0, first_step=0.75, usual=0.25)


@pytest.fixture
def client(site: Site) -> Client:
    return site.serve()


def running(client: Client, name: str = "bert") -> None:
    client.submit(spec(name))
    client.wait("default", name, "running", 10)


def read(site: Site) -> Samples:
    return parsed(scrape(site.home))


def record(site: Site, *records: Record, name: str = "bert") -> Path:
    """What the coordinator of the job's run writes down."""
    path = site.home / "fake" / "default" / name / "run" / "flight.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(f"{as_line(each)}\n" for each in records)
    return path


def test_a_job_s_workers_appear_change_and_go_with_it(client: Client, site: Site) -> None:
    running(client)
    found = read(site)
    names = ("workers", "workers_wanted", "workers_min", "workers_max", "restarts_total")
    told = {name: value(found, f"midflight_job_{name}", **BERT) for name in names}
    assert told == dict(zip(names, (2, 2, 1, 4, 0), strict=True))
    assert value(found, "midflight_jobs", phase="RUNNING") == 1
    assert value(found, "midflight_jobs", phase="FAILED") == 0

    operation = client.scale("default", "bert", {"to": 3, "timeout": 20})
    while operation["endTime"] is None:
        operation = client.operation("default", "bert", operation["id"], operation["changes"], 10)
    found = read(site)
    assert value(found, "midflight_job_workers", **BERT) == 3
    assert value(found, "midflight_job_workers_wanted", **BERT) == 3

    client.delete("default", "bert")
    client.wait("default", "bert", "gone", 10)
    assert not [labels for _, labels in read(site) if ("job", "bert") in labels]


def test_a_job_s_training_appears_and_changes(client: Client, site: Site) -> None:
    running(client)
    assert ("midflight_job_steps_total", frozenset(BERT.items())) not in read(site)
    begin = Begun(0.0, "bert", 1e9, 2, 1, 4)
    record(site, begin, Formed(1.0, 1, 0, "start", PLACES), Progress(2.0, 10, 320))
    found = read(site)
    names = ("steps_total", "samples_total", "members", "losses_total")
    assert [value(found, f"midflight_job_{name}", **BERT) for name in names] == [10, 320, 2, 0]
    assert value(found, "midflight_job_changes_total", **BERT, cause="start") == 1

    gone = Lost(3.0, "m1", "h1", 'a "reason"\nof two lines')
    record(site, gone, Formed(3.1, 2, 10, "failure", PLACES[:1]), Progress(9.0, 20, 640))
    record(site, Paused(9.0, "m0", 2, 10, planned=False, pause=PAUSE))
    found = read(site)
    assert [value(found, f"midflight_job_{name}", **BERT) for name in names] == [20, 640, 1, 1]
    assert value(found, "midflight_job_changes_total", **BERT, cause="failure") == 1
    pauses = {
        phase: (
            value(found, "midflight_job_pause_seconds_count", **BERT, cause="failure", phase=phase),
            value(found, "midflight_job_pause_seconds_sum", **BERT, cause="failure", phase=phase),
        )
        for phase in ("detect", "agree", "connect", "state", "first_step")
    }
    assert pauses == {
        "detect": (1, 0.5),
        "agree": (1, 0.25),
        "connect": (1, 1.0),
        "state": (1, 2.0),
        "first_step": (1, 0.5),
    }


def test_a_damaged_record_fails_no_scrape(client: Client, site: Site) -> None:
    running(client)
    path = record(site, Begun(0.0, "bert", 1e9, 2, 1, 4), Progress(1.0, 5, 0))
    with path.open("ab") as file:
        file.write(b'\xff\x00not json\n{"kind": "progress", "t": -1}\n{"kind": "lost"}\n')
    record(site, Progress(2.0, 6, 0))
    assert value(read(site), "midflight_job_steps_total", **BERT) == 6


def test_the_server_counts_its_requests_and_what_it_writes(client: Client, site: Site) -> None:
    before = read(site)
    running(client)
    ask(site.home, "GET", "/nothing")
    after = read(site)

    def grown(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after[key] - before.get(key, 0)

    assert grown("midflight_requests_total", method="POST", code="201") == 1
    assert grown("midflight_requests_total", method="GET", code="404") == 1
    assert grown("midflight_requests_total", method="GET", code="200") == 2, "a wait and a scrape"
    assert grown("midflight_store_save_duration_seconds_count") > 0
    assert grown("midflight_store_save_duration_seconds_sum") > 0
    assert grown("midflight_store_save_failures_total") == 0
    assert grown("midflight_reconciles_total") > 0
    assert grown("process_start_time_seconds") == 0
    assert value(after, "midflight_build_info", version=midflight.__version__) == 1


def test_a_method_that_nobody_knows_makes_no_series_of_its_own(client: Client, site: Site) -> None:
    for method in ("BREW", "PROPFIND"):
        ask(site.home, method, "/status")
    found = {dict(labels)["method"] for name, labels in read(site) if "requests" in name}
    assert found == {"GET", "other"}


def test_a_thousand_jobs_are_served(client: Client, site: Site) -> None:
    for number in range(1000):
        client.submit(spec(f"job-{number}", gpus=1, workers=1))
        record(site, Begun(0.0, "x", 1e9, 1, 1, 4), Progress(1.0, number, 0), name=f"job-{number}")
    found = read(site)
    steps = {
        dict(labels)["job"]: int(count)
        for (name, labels), count in found.items()
        if name == "midflight_job_steps_total"
    }
    assert steps == {f"job-{number}": number for number in range(1000)}
    by_phase = [count for (name, _), count in found.items() if name == "midflight_jobs"]
    assert sum(by_phase) == 1000
