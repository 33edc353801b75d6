"""A running operator beside the cluster, and jobs for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.plane.cluster import Cluster
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.running.jobs import Jobs
from tests.kubernetes.running.operators import Operators


@pytest.fixture(scope="module")
def _operators(plane: Plane) -> Iterator[Operators]:
    """They end with the module: other tests play the operator themselves."""
    started = Operators(plane)
    yield started
    started.stop_all()


@pytest.fixture
def operators(_operators: Operators) -> Iterator[Operators]:
    """One of them runs; a test may kill it, and start others."""
    _operators.ensure_one()
    yield _operators
    assert not _operators.bugs()


@pytest.fixture
def jobs(operators: Operators, cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Jobs]:
    """Makes jobs in the test's own namespace, and looks at them."""
    made = Jobs(cluster, namespace, tmp_path)
    yield made
    operators.ensure_one()
    made.clear()
