"""What horovodrun's users expect of a job: fixed size means fixed, and new hosts are used."""

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Ended, Mode
from tests.coordinator.scenario import FakeCluster

HOSTS = {"h0": 2, "h1": 1}


def static() -> FakeCluster:
    return FakeCluster(HOSTS, np=3, min_np=3, max_np=3, fixed_size=True)


@pytest.mark.parametrize("uses_midflight", [True, False])
@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_the_first_failure_ends_a_job_of_fixed_size(uses_midflight: bool, seconds: float) -> None:
    cluster = static()
    cluster.uses_midflight = uses_midflight
    cluster.settle()
    cluster.run(seconds)
    cluster.kill("m2", code=7)
    cluster.run(0.3)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert cluster.state.first_failure == Ended("h1", 0, 7, rank=2)
    assert cluster.state.serial == 3, "nobody was started in its place"


def test_only_the_first_failure_is_remembered() -> None:
    cluster = static().run(3.0)
    cluster.kill("m1", code=-9)
    cluster.kill("m0", code=1)
    cluster.run(0.5)
    assert cluster.state.first_failure == Ended("h0", 1, -9, rank=1)


def test_a_process_that_was_first_seen_to_be_gone_is_told_of_with_its_exit_code() -> None:
    cluster = static().run(3.0)
    cluster.client(events.Probed, "m1", "gone")
    assert cluster.state.first_failure is None, "it has not been asked about"
    cluster.handle(events.Disconnected(cluster.now, "m1"))
    cluster.handle(events.Probed(cluster.now, "m1", "gone"))
    assert cluster.state.first_failure == Ended("h0", 1, -9, rank=1)
    cluster.handle(events.Exited(cluster.now, "m1", 3, ""))
    assert cluster.state.first_failure == Ended("h0", 1, 3, rank=1)


def test_a_job_of_fixed_size_does_not_fail_because_its_processes_were_told_to_end() -> None:
    cluster = FakeCluster({"h0": 1, "h1": 1}, np=1, fixed_size=True, start_timeout=5.0)
    cluster.uses_midflight = False
    cluster.run_until(lambda: cluster.state.mode is Mode.RESTART)
    cluster.client(events.HostNoticed, "h0", 30.0)
    cluster.run(3.0)
    assert cluster.ended is None
    assert [cluster.members[name].host for name in cluster.running] == ["h1"]


def test_a_job_of_fixed_size_succeeds_like_any_other() -> None:
    cluster = static()
    cluster.last_step = 5
    cluster.run(5.0)
    assert cluster.ended == (0, "")


def test_a_greedy_job_takes_the_slots_of_a_host_that_comes() -> None:
    cluster = FakeCluster({"h0": 2}, np=2, min_np=1, max_np=4, takes_all_slots=True).run(3.0)
    assert len(cluster.world) == 2
    cluster.add_host("h1", 5)
    cluster.run_until(lambda: len(cluster.world) == 4)
    cluster.run(3.0)
    assert len(cluster.world) == 4, "and no more than --max-np"


def test_a_greedy_job_begins_with_all_hosts_that_are_listed_and_come_soon() -> None:
    def listed() -> FakeCluster:
        cluster = FakeCluster({"h9": 1}, np=2, min_np=2, max_np=4, takes_all_slots=True)
        cluster.client(events.HostsListed, {"h0": 2, "h1": 2})
        cluster.add_host("h0", 2)
        return cluster.run(1.0)

    cluster = listed()
    cluster.add_host("h1", 2)
    cluster.run_until(lambda: bool(cluster.world))
    assert len(cluster.world) == 4
    without = listed()
    without.run_until(lambda: len(without.world) == 2, seconds=5.0)


def test_a_greedy_job_takes_the_slots_that_a_host_gets() -> None:
    cluster = FakeCluster({"h0": 1}, np=1, min_np=1, max_np=9, takes_all_slots=True).run(3.0)
    cluster.agents["h0"].slots = 3
    cluster.client(events.HostsListed, {"h0": 3})
    cluster.run_until(lambda: len(cluster.world) == 3)


def test_members_leave_slots_that_their_host_has_no_more() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 1}, np=3, min_np=1, takes_all_slots=True).run(3.0)
    assert cluster.world == ("m0", "m1", "m2")
    cluster.client(events.HostsListed, {"h0": 1, "h1": 1})
    cluster.run_until(lambda: cluster.world == ("m0", "m2"))
    assert cluster.state.resets == 0, "they left in good order"
    cluster.run(3.0)
    assert cluster.world == ("m0", "m2")


def test_a_job_that_is_not_greedy_stays_as_large_as_it_was_asked_to_be() -> None:
    cluster = FakeCluster({"h0": 2}, np=2).run(3.0)
    cluster.add_host("h1", 2)
    cluster.run(5.0)
    assert len(cluster.world) == 2


def test_a_host_that_failed_is_used_again_after_its_cool_down() -> None:
    cluster = FakeCluster(
        {"h0": 1, "h1": 1}, np=2, min_np=1, takes_all_slots=True, cooldown_min=5.0
    )
    cluster.run(3.0)
    cluster.kill("m1")
    cluster.run(3.0)
    assert len(cluster.world) == 1
    cluster.run_until(lambda: len(cluster.world) == 2, seconds=10.0)
