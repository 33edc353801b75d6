"""A node with real containers beside the plane, an operator, and jobs for both."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.plane import real_parts
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.daemons import Daemon
from tests.kubernetes.plane.real_node import RealNode
from tests.kubernetes.real_node.real_jobs import RealJobs
from tests.kubernetes.running.operators import NAMESPACE
from tests.packages import Missing


@pytest.fixture(scope="module")
def real_node(plane: Plane) -> Iterator[RealNode]:
    """It goes with these tests: others are not to find it among their nodes."""
    try:
        parts = real_parts.obtain(plane.binaries)
    except Missing as missing:
        pytest.skip(str(missing))
    node = RealNode(plane, parts)
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture
def cluster(plane: Plane, real_node: RealNode) -> Cluster:
    return Cluster(plane, real_node)


@pytest.fixture(scope="module")
def operator(plane: Plane) -> Iterator[Daemon]:
    """One more, should another test have left one running: whichever leads, does."""
    path = "/api/v1/namespaces"
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    if plane.api.get(f"{path}/{NAMESPACE}") is None:
        plane.api.call("POST", path, space)
    command = [sys.executable, "-m", "midflight.cli", "operator", "run", "--verbose"]
    command += ["--config", str(plane.kubeconfig), "--identity", "real-operator"]
    command += ["--lease-namespace", NAMESPACE]
    log = plane.folder / "real-operator.log"
    started = Daemon("real-operator", command, log, dict(os.environ))
    started.await_ready(lambda: "lease" in log.read_text())
    yield started
    started.stop()
    assert "a bug" not in log.read_text()


@pytest.fixture
def jobs(operator: Daemon, cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[RealJobs]:
    made = RealJobs(cluster, namespace, tmp_path)
    yield made
    made.clear()
