"""`midflight.Client` on a cluster, against a real API server: the same calls and results."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.api.client import Client
from midflight.controller.state import Phase
from midflight.errors import JobFailed, MidflightError, NotFound, UsageError
from midflight.kubernetes import names
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.verb_site import Site
from tests.kubernetes.verb_terminal import typing_in

JOBS = names.TRAININGJOB
CONTAINER = {"image": "example/train:1"}


@pytest.fixture
def site(plane: Plane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with typing_in(plane, tmp_path, capfd) as made:
        yield made


@pytest.fixture
def client(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path / "home"))
    with Client(config=str(site.kubeconfig), namespace=site.namespace) as made:
        yield made


def test_a_job_becomes_objects_and_is_shown_and_deleted(site: Site, client: Client) -> None:
    made = client.submit("demo", "python train.py", workers=2, max_workers=4, container=CONTAINER)
    assert (made.name, made.namespace, made.folder) == ("demo", site.namespace, "")
    site.state("demo")
    (listed,) = client.list()
    found = client.get("demo")
    assert (listed.name, found.status, found.workers, found.max_workers) == (
        "demo", "RUNNING", 2, 4,
    )  # fmt: skip
    assert [each.name for each in found.instances] == [
        "demo-launcher",
        "demo-worker-0",
        "demo-worker-1",
    ]
    assert json.loads(site.types("list", "-o", "json").out)[0]["name"] == "demo"
    client.delete("demo")
    assert site.get(JOBS, "demo") is None
    with pytest.raises(NotFound, match=f"no job is named 'demo' in namespace {site.namespace}"):
        client.get("demo")


def test_another_size_is_asked_for(site: Site, client: Client) -> None:
    client.submit("demo", "train", workers=2, max_workers=4, container=CONTAINER)
    site.state("demo")
    asked = client.scale("demo", add=1, wait=False)
    assert (asked.kind, asked.before, asked.after) == ("scaleout", 2, 3)
    with pytest.raises(MidflightError) as error:
        client.scale("demo", to=9, wait=False)
    assert "--" not in str(error.value)


def test_the_end_of_a_job_is_waited_for(site: Site, client: Client) -> None:
    client.submit("demo", "train", container=CONTAINER)
    site.state("demo", phase=Phase.FAILED, reason="rank 0: ValueError")
    with pytest.raises(JobFailed, match="demo has failed: rank 0: ValueError"):
        client.wait("demo", timeout=60)


def test_what_is_wrong_is_said_before_anything_is_created(site: Site, client: Client) -> None:
    with pytest.raises(UsageError, match="workers 3 is not between min_workers 1 and"):
        client.submit("demo", "train", workers=3, max_workers=2, container=CONTAINER)
    assert site.get(JOBS, "demo") is None
