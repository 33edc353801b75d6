"""A real cluster for the tests: nodes beside the control plane, and one of it for all.

Tests that need rights which are not to be had here are skipped, and say what is missing. Each test
has a namespace of its own; whatever it leaves there is deleted with it.
"""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.kubernetes.plane import nodes
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.nodes import Nodes

NODES = ("node-0", "node-1", "node-2")


@pytest.fixture(scope="session")
def _cluster(plane: Plane) -> Iterator[Cluster]:
    if (missing := nodes.missing_rights()) is not None:
        pytest.skip(missing)
    started = Nodes(plane)
    try:
        started.start(*NODES)
        yield Cluster(plane, started)
    finally:
        started.stop()


@pytest.fixture
def cluster(_cluster: Cluster) -> Iterator[Cluster]:
    """Three nodes with four GPUs each, whatever the test before did to them."""
    _cluster.nodes.remove(*set(_cluster.nodes.names) - set(NODES))
    _cluster.nodes.start(*set(NODES) - set(_cluster.nodes.names))
    _cluster.nodes.uncordon()
    yield _cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh one, in which pods can be created; none of them may outlive it."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40]
    name = f"{words.strip('-')}-{uuid4().hex[:6]}"
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.wait_for("ServiceAccount", name, "default", bool)
    cluster.wait_for("ConfigMap", name, "kube-root-ca.crt", bool)
    yield name
    cluster.clear(name)


@pytest.fixture
def kubectl(cluster: Cluster) -> Any:
    """Runs kubectl as the administrator."""
    if cluster.plane.binaries.kubectl is None:
        pytest.skip("no kubectl on the PATH, and none could be built")
    return cluster.kubectl
