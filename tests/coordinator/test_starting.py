"""How a job comes up: at the wanted size, or at the minimum after the start timeout."""

from midflight.coordinator.core.state import Phase
from tests.coordinator.fake_members import Fate
from tests.coordinator.scenario import FakeCluster, stable, started


def test_a_job_starts_at_the_wanted_size() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=3).run(1.0)
    assert cluster.phase is Phase.STABLE
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.promises.done > 0
