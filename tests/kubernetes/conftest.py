"""A real cluster for the tests: started when the first of them asks for it, and one for all.

Tests that need programs or rights which are not to be had here are skipped, and say what is
missing. Each test has a namespace of its own; whatever it leaves there is deleted with it.
"""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from midflight.backends.kubernetes.crds import crds
from tests.kubernetes.plane import binaries, nodes
from tests.kubernetes.plane.binaries import Binaries, Missing
from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.nodes import Nodes

NODES = ("node-0", "node-1", "node-2")
PROGRAMS = pytest.StashKey[Binaries | Missing]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what is missing now: it takes longer than any test may."""
    wanted = any("plane" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            session.config.stash[PROGRAMS] = _obtained()


def _obtained() -> Binaries | Missing:
    try:
        return binaries.obtain()
    except Missing as missing:
        return missing


@pytest.fixture(scope="session")
def plane(request: pytest.FixtureRequest) -> Iterator[Plane]:
    """The control plane alone, with our custom resources."""
    programs = request.config.stash.get(PROGRAMS, None) or _obtained()
    if isinstance(programs, Missing):
        pytest.skip(str(programs))
    started = Plane.start(programs, crds())
    yield started
    started.stop()


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
