"""Scaling and waiting on a cluster: what is asked for, and what is heard of it.

No operator runs; what it would write is written by hand, in a thread where somebody waits for it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midflight.controller.state import Operation, Phase, Progress
from midflight.errors import NotFound, TimedOut
from midflight.kubernetes import names
from midflight.kubernetes.api.paths import path
from tests.kubernetes.plane.api import MERGE
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.verb_site import Site
from tests.kubernetes.verb_terminal import typing_in

LONG = 60.0  # seconds in which everything happens that is waited for


@pytest.fixture
def site(plane: Plane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with typing_in(plane, tmp_path, capfd) as made:
        yield made


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Does something while the test waits for it."""
    threads: list[threading.Thread] = []

    def start(work: Callable[[], object]) -> None:
        threads.append(threading.Timer(0.2, work))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def operation(job: str, identity: str, **more: object) -> Operation:
    now = time.time()
    made = Operation(identity, "scaleout", 1, 60.0, now, now + 60, was=2, target=3)
    return replace(made, **more)


# --- scaling --------------------------------------------------------------------------------------


def test_a_request_becomes_an_object_with_the_name_of_the_operation(site: Site) -> None:
    site.submit("demo")
    site.state("demo")
    said = site.types("scaleout", "etjob", "--name=demo", "--count=2", "--timeout=90s")
    name = said.out.split()[0].partition("/")[2]
    assert said.out == f"scaleout.kai.alibabacloud.com/{name} created\n"
    assert f"The scaleout job {name} has been submitted successfully" in said.err
    made = site.get(names.SCALEOUT, name)
    assert made is not None
    assert made["spec"]["toAdd"]["count"] == 2
    assert (made["spec"]["selector"], made["spec"]["timeout"]) == ({"name": "demo"}, 90)


def test_workers_that_leave_by_name_are_named_in_the_object(site: Site) -> None:
    site.submit("demo")
    site.state("demo")
    said = site.types("scalein", "etjob", "--name=demo", "--pod-names=demo-worker-0")
    made = site.get(names.SCALEIN, said.out.split()[0].partition("/")[2])
    assert made is not None and made["spec"]["toDelete"]["podNames"] == ["demo-worker-0"]


def test_a_size_becomes_an_object_too(site: Site) -> None:
    site.submit("demo")
    site.state("demo")
    said = site.types("resize", "demo", "--to=4", "--no-wait", "-n", site.namespace)
    made = site.get(names.SCALEOUT, said.out.split()[0].partition("/")[2])
    assert made is not None and made["spec"]["toAdd"]["count"] == 2


def test_two_requests_in_one_second_have_two_names(site: Site) -> None:
    site.submit("demo")
    site.state("demo")
    request = {"kind": "scaleout", "count": 1}
    made = [site.client.scale(site.namespace, "demo", request)["id"] for _ in range(2)]
    made.append(site.client.scale(site.namespace, "demo", {"kind": "scalein", "count": 1})["id"])
    assert len(set(made)) == 3


def test_a_request_that_cannot_be_granted_is_refused_and_no_object_is_made(site: Site) -> None:
    site.submit("demo")
    said = site.types("scaleout", "etjob", "--name=demo", code=1)
    assert "the job: demo status: PENDING , is not RUNNING or SCALING" in said.err
    site.state("demo")
    said = site.types("scaleout", "etjob", "--name=demo", "--count=9", code=1)
    assert "exceeds the max-workers. please try again later (2 + 9 > 4)" in said.err
    said = site.types("scalein", "etjob", "--name=demo", "--pod-names=demo-worker-7", code=1)
    assert "no worker of demo is named 'demo-worker-7'" in said.err
    said = site.types("scaleout", "etjob", "--name=nope", code=1)
    assert "training job not found,please use" in said.err
    for kind in (names.SCALEOUT, names.SCALEIN):
        assert site.api.call("GET", path(kind, site.namespace))["items"] == []


def test_whoever_waits_hears_what_became_of_it(site: Site, later: Callable[..., None]) -> None:
    site.submit("demo")
    site.state("demo")

    def operate() -> None:
        (made,) = site.api.call("GET", path(names.SCALEOUT, site.namespace))["items"]
        identity = made["metadata"]["name"]
        asked = operation("demo", identity, progress=Progress.ASKED, changes=1)
        site.state("demo", operations=(asked,), phase=Phase.SCALING)
        done = replace(asked, progress=Progress.SUCCEEDED, message="3 workers now", changes=2)
        site.state("demo", operations=(done,), wanted=3)

    def once_asked() -> None:
        for event, _ in site.api.watch(path(names.SCALEOUT, site.namespace), LONG):
            if event == "ADDED":
                return operate()

    later(once_asked)
    assert site.types("scaleout", "etjob", "--name=demo", "--wait").out.endswith("3 workers now\n")


def test_a_request_that_the_operator_refuses_is_reported_too(
    site: Site, later: Callable[..., None]
) -> None:
    site.submit("demo")
    site.state("demo")

    def refuse() -> None:
        for event, made in site.api.watch(path(names.SCALEOUT, site.namespace), LONG):
            if event == "ADDED":
                condition = {
                    "type": "ScaleFailed",
                    "status": "True",
                    "message": "somebody was faster",
                }
                status = {"phase": "ScaleFailed", "conditions": [condition]}
                name = made["metadata"]["name"]
                where = path(names.SCALEOUT, site.namespace, name, "status")
                site.api.call("PATCH", where, {"status": status}, MERGE)
                return

    later(refuse)
    said = site.types("scaleout", "etjob", "--name=demo", "--wait", code=1)
    assert "somebody was faster" in said.err


def test_an_operation_that_nobody_knows_is_not_found(site: Site) -> None:
    site.submit("demo")
    with pytest.raises(NotFound, match="the job demo has no operation demo-1"):
        site.client.operation(site.namespace, "demo", "demo-1")


# --- waiting --------------------------------------------------------------------------------------


def test_a_job_is_waited_for_until_it_runs_and_until_it_is_over(
    site: Site, later: Callable[..., None]
) -> None:
    site.submit("demo")
    later(lambda: site.state("demo"))
    assert site.client.wait(site.namespace, "demo", "running", LONG)["status"] == "RUNNING"
    later(lambda: site.state("demo", phase=Phase.SUCCEEDED, ended_at=time.time()))
    assert site.types("wait", "demo").out == "demo is SUCCEEDED\n"


def test_what_does_not_happen_in_time_is_an_error(site: Site) -> None:
    site.submit("demo")
    with pytest.raises(TimedOut, match=r"was not running within 0\.1 s"):
        site.client.wait(site.namespace, "demo", "running", 0.1)


def test_a_job_that_is_deleted_meanwhile_is_gone_and_nothing_else(
    site: Site, later: Callable[..., None]
) -> None:
    site.submit("demo")
    later(lambda: site.client.delete(site.namespace, "demo"))
    with pytest.raises(NotFound, match="was deleted before it was finished"):
        site.client.wait(site.namespace, "demo", "finished", LONG)
    assert site.types("wait", "demo", "--for=gone").out == "demo is gone\n"
    with pytest.raises(NotFound):
        site.client.wait(site.namespace, "demo", "running", LONG)


@pytest.mark.slow
def test_waiting_goes_on_when_the_api_server_has_been_restarted(site: Site, plane: Plane) -> None:
    site.submit("demo")
    changes = site.connection.changes(names.TRAININGJOB, site.namespace, "demo", LONG)
    assert next(changes) is not None
    plane.restart_api_server()
    site.state("demo", phase=Phase.FAILED)
    seen = next(changes)
    assert seen is not None and seen["status"]["phase"] == "Failed"
    changes.close()
