"""The operator on a real control plane: what many idle jobs cost, and what a resize costs in pods.

First 500 jobs with 2,000 pods and no node to run them: the operator's memory, its processor time
when nothing changes, the first pod of a new job, `list`. Then three process nodes with a training
job that is scaled out and in: how much of the time between the request and its end was not the new
pod's own (its start, its processes, imports, model).
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.processes import BenchError
from bench.rows import Row
from bench.usage import cpu_seconds, resident_megabytes
from midflight.kubernetes.resources.crds import crds
from tests import packages
from tests.kubernetes.plane import binaries
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.nodes import Nodes
from tests.kubernetes.running.jobs import Jobs
from tests.kubernetes.running.operators import Operators
from tests.kubernetes.running.training import members, training, wait_members

JOBS = int(os.environ.get("MIDFLIGHT_BENCH_JOBS", "500"))  # a smaller number is for trying out
WORKERS = 3  # and a launcher each
NEW, LISTS, RESIZES = 5, 7, 3
IDLE_SECONDS = 30.0
QUIET_SECONDS = 10.0
FILL_SECONDS = 600.0
SPACE = "bench"


def run() -> list[Row]:
    try:
        programs = binaries.obtain()
    except packages.Missing as missing:
        raise BenchError(str(missing)) from None
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        plane = Plane.start(programs, crds())
        try:
            with _operator(plane) as operators:
                figures = [*_many(plane, operators, Path(folder))]
        finally:
            plane.stop()
        plane = Plane.start(programs, crds())
        try:
            with _operator(plane):
                figures += _resizes(plane, Path(folder) / "resize")
        finally:
            plane.stop()
    return [
        Row("midflight", "kubernetes", 0, 0, what, value, unit) for what, value, unit in figures
    ]


@contextmanager
def _operator(plane: Plane) -> Iterator[Operators]:
    operators = Operators(plane)
    operators.start()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    plane.api.call("POST", "/api/v1/namespaces", space)
    try:
        yield operators
    finally:
        operators.stop_all()


# --- many idle jobs -------------------------------------------------------------------------------


def _many(plane: Plane, operators: Operators, folder: Path) -> Iterator[tuple[str, float, str]]:
    cluster = Cluster(plane, Nodes(plane))
    jobs = Jobs(cluster, SPACE, folder)
    cluster.wait_for("ServiceAccount", SPACE, "default", lambda account: account.get("secrets"))
    began = time.monotonic()
    for number in range(JOBS):
        jobs.idle(f"idle-{number}", WORKERS)
    wanted = JOBS * (WORKERS + 1)
    cluster.wait_for_all("Pod", SPACE, lambda pods: len(pods) >= wanted, FILL_SECONDS)
    print(f"bench: {wanted} pods after {time.monotonic() - began:.0f} s", file=sys.stderr)
    (name,) = operators.names
    pid = operators.process(name).process.pid
    while _changes(cluster):
        pass
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds(pid) - before) / IDLE_SECONDS
    yield f"operator's memory, {JOBS} jobs and {wanted} pods", resident_megabytes(pid), "MB"
    yield "operator's share of a core when nothing changes", 100 * share, "%"
    first = [_first_pod(jobs, f"new-{number}") for number in range(NEW)]
    yield "a new job's first pod after", 1000 * median(first), "ms"
    yield f"list of {JOBS} jobs", 1000 * median(_list(plane) for _ in range(LISTS)), "ms"


def _changes(cluster: Cluster) -> bool:
    """Whether anything becomes of the jobs within a while."""
    news = cluster.api.watch(cluster.path("TrainingJob", SPACE), QUIET_SECONDS)
    return any(event == "MODIFIED" for event, _ in news)


def _first_pod(jobs: Jobs, name: str) -> float:
    began = time.monotonic()
    jobs.idle(name, 1)
    own = {"labelSelector": f"midflight.dev/job={name}"}
    jobs.cluster.wait_for_all("Pod", SPACE, lambda pods: len(pods) > 0, 60.0, **own)
    return time.monotonic() - began


def _list(plane: Plane) -> float:
    command = [sys.executable, "-m", "midflight.cli", "--config", str(plane.kubeconfig)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "list", "-n", SPACE], capture_output=True, text=True, env=dict(os.environ)
    )
    took = time.monotonic() - began
    if done.returncode or len(done.stdout.splitlines()) < JOBS:
        raise BenchError(f"list did not list: {done.stderr or done.stdout[-200:]}")
    return took


# --- resizes --------------------------------------------------------------------------------------


def _resizes(plane: Plane, folder: Path) -> list[tuple[str, float, str]]:
    nodes = Nodes(plane)
    folder.mkdir()
    nodes.start("node-0", "node-1", "node-2")
    try:
        cluster = Cluster(plane, nodes)
        cluster.wait_for("ServiceAccount", SPACE, "default", lambda a: a.get("secrets"))
        jobs = Jobs(cluster, SPACE, folder)
        jobs.counting("train", workers=2, epochs=100_000)
        wait_members(jobs, "train", 2)
        out = [_scale_out(jobs, number) for number in range(RESIZES)]
        jobs.clear()
        return [
            ("scale-out in pods, all of it", 1000 * median(all_of for all_of, _, _ in out), "ms"),
            ("of which not the pod's own", 1000 * median(own for _, own, _ in out), "ms"),
            ("scale-in in pods, until agreed", 1000 * median(back for _, _, back in out), "ms"),
        ]
    finally:
        nodes.stop()


def _scale_out(jobs: Jobs, number: int) -> tuple[float, float, float]:
    """Seconds from the request until it is absorbed; those without the pod's own; and back."""
    began = time.monotonic()
    jobs.scale_out("train", f"out-{number}", 1)
    _await_newest(jobs)
    made = time.monotonic() - began
    while len(members(training(jobs, "train"))) < 3:
        time.sleep(0.01)
    absorbed = time.monotonic() - began
    _over(jobs, "ScaleOut", f"out-{number}")
    said = time.monotonic() - began
    # Between the two the pod starts, its agent, its member, which imports and builds its model.
    own = made + max(said - absorbed, 0.0)
    back = time.monotonic()
    jobs.scale_in("train", f"in-{number}", count=1)
    while len(members(training(jobs, "train"))) > 2:
        time.sleep(0.01)
    agreed = time.monotonic() - back
    _over(jobs, "ScaleIn", f"in-{number}")
    return absorbed, own, agreed


def _await_newest(jobs: Jobs) -> None:
    known = jobs.wait_for("train", lambda job: len(_targets(job)) == 3, 30.0)
    jobs.cluster.wait_for("Pod", SPACE, _targets(known)[-1], lambda pod: True)


def _targets(job: dict[str, Any]) -> list[str]:
    return list(job.get("status", {}).get("targetWorkers") or [])


def _over(jobs: Jobs, kind: str, name: str) -> None:
    scaler = jobs.wait_scaled(kind, name)
    if scaler["status"]["phase"] != "ScaleSucceeded":
        raise BenchError(f"{kind} {name}: {scaler['status']['conditions']}")
    jobs.wait_for("train", lambda job: job["status"]["phase"] == "Running")
