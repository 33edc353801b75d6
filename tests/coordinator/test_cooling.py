"""Hosts that failed: avoided for a while that grows and always ends."""

from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.hosts import blame, cool_down, free_slots
from tests.coordinator.scenario import FakeCluster, stable, started


def fail_host(cluster: FakeCluster, host: str) -> float:
    cluster.now += 2.0
    draft = Draft(cluster.state, cluster.now)
    pause = cool_down(draft, host)
    cluster.state = draft.state
    return pause


def test_the_pause_doubles_with_each_failure_up_to_the_maximum() -> None:
    cluster = started(np=2, cooldown_min=5.0, cooldown_max=60.0)
    pauses = [fail_host(cluster, "h1") for _ in range(6)]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_the_pause_ends_and_the_host_is_used_again() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, cooldown_min=5.0)
    cluster.kill("m1")
    cluster.run(4.5)
    assert cluster.world == ("m0",)
    assert free_slots(cluster.state, cluster.now) == []
    cluster.run(2.0)
    assert cluster.world == ("m0", "m2")
    assert cluster.members["m2"].host == "h1"


def test_a_host_that_was_fine_for_long_starts_over() -> None:
    cluster = started(np=2, cooldown_min=5.0, cooldown_max=20.0)
    for _ in range(3):
        fail_host(cluster, "h1")
    cluster.run(41.0)
    assert fail_host(cluster, "h1") == 5.0


def test_a_host_that_fails_again_soon_does_not_start_over() -> None:
    cluster = started(np=2, cooldown_min=5.0, cooldown_max=20.0)
    fail_host(cluster, "h1")
    cluster.run(10.0)
    assert fail_host(cluster, "h1") == 10.0


def test_a_member_that_ended_in_good_order_costs_its_host_nothing() -> None:
    cluster = started({"h0": 1, "h1": 2}, np=3)
    cluster.kill("m2", code=0)
    cluster.run(2.0)
    assert stable(cluster)
    assert cluster.state.hosts["h1"].failures == 0


def test_several_members_lost_together_are_one_failure_of_their_host() -> None:
    cluster = started({"h0": 1, "h1": 3}, np=4)
    cluster.kill_agent("h1")
    cluster.run(1.0)
    assert cluster.state.hosts["h1"].failures == 1


def test_a_host_that_comes_back_at_another_address_has_done_nothing_yet() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, cooldown_min=50.0)
    cluster.kill_agent("h1")
    cluster.run(1.0)
    assert free_slots(cluster.state, cluster.now) == []
    cluster.add_host("h1", 1, net=9)
    cluster.run(2.0)
    assert cluster.state.hosts["h1"].failures == 0
    assert [cluster.members[name].host for name in cluster.world or ()] == ["h0", "h1"]


def test_it_is_not_blamed_for_members_that_were_lost_before_it_came() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, cooldown_min=50.0)
    lost = cluster.state.members["m1"]
    draft = Draft(cluster.state, cluster.now)
    draft.set_host("h1", address="10.0.0.99")
    blame(draft, [lost])
    assert draft.state.hosts["h1"].failures == 0
    draft.set_host("h1", address=lost.address)
    blame(draft, [lost])
    assert draft.state.hosts["h1"].failures == 1
