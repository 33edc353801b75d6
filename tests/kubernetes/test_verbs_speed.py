"""`list` on a cluster with 500 jobs: what it costs.

Half a second in all is promised on a machine that has nothing else to do. Tests run on one that
has, so what the command itself uses is held against a bound, and the clock against a generous one.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from midflight.controller.spec import Container, Kind, Spec
from midflight.kubernetes.manifests import job as manifests
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.verb_site import Site
from tests.kubernetes.verb_terminal import typing_in

JOBS = 500
CPU = 0.45  # seconds of the processor, for the program from its start to its end
WALL = 2.0


@pytest.fixture
def site(plane: Plane, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with typing_in(plane, tmp_path, capfd) as made:
        yield made


def submit(site: Site, number: int) -> None:
    container = Container(image="example/train:1")
    spec = Spec(Kind.ETJOB, f"job-{number}", "train", site.namespace, 2, 1, 4, container=container)
    (job,) = manifests.objects_of(spec, "me", {})
    site.connection.create(job)


@pytest.mark.slow
def test_five_hundred_jobs_are_listed_at_once(site: Site, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: submit(site, number), range(JOBS)))
    costs = []
    for _ in range(3):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "midflight.cli", "--config", str(site.kubeconfig)),
                *("-n", site.namespace, "list"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "MIDFLIGHT_HOME": str(tmp_path)},
        )
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert done.stdout.count("\n") == JOBS + 1, done.stderr
        costs.append((cpu, wall))
    print(costs)
    assert min(cpu for cpu, _ in costs) < CPU, costs
    assert min(wall for _, wall in costs) < WALL, costs
