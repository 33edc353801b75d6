"""torchrun's rules: what counts as a failure, when a job starts, and who comes first."""

from typing import Any

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Mode, Phase
from tests.coordinator.fake_members import Health
from tests.coordinator.scenario import FakeCluster

RULES: dict[str, Any] = {
    "max_restarts": 0,
    "by_rank": True,
    "last_call": 2.0,
    "cooldown_min": 0.0,
    "cooldown_max": 0.0,
    "np": 6,
    "min_np": 2,
    "max_np": 6,
}


def nodes(*names: str, uses_midflight: bool = False, **spec: Any) -> FakeCluster:
    """A job for one to three nodes with two workers each."""
    cluster = FakeCluster(dict.fromkeys(names, 2), **{**RULES, **spec})
    cluster.uses_midflight = uses_midflight
    return cluster


def launched(cluster: FakeCluster, size: int) -> FakeCluster:
    return cluster.run_until(lambda: len(cluster.running) == size)


def test_a_full_job_starts_at_once_and_a_smaller_one_after_the_last_call() -> None:
    assert len(nodes("h0", "h1", "h2").run(0.2).running) == 6
    cluster = nodes("h0")
    assert not cluster.run(1.5).running
    assert len(cluster.run(1.0).running) == 2


def test_fewer_than_the_minimum_wait_and_are_given_up_at_last() -> None:
    cluster = nodes("h0", min_np=4, elastic_timeout=30.0)
    assert not cluster.run(20.0).running
    cluster.run(60.0)
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_who_comes_before_anybody_has_called_midflight_starts_all_anew() -> None:
    cluster = launched(nodes("h0"), 2)
    cluster.add_host("h1", 2)
    cluster.run(1.5)
    assert cluster.state.mode is Mode.RESTART
    assert cluster.running == ["m2", "m3", "m4", "m5"]
    assert cluster.state.resets == 0


def test_nodes_that_come_together_cause_one_restart() -> None:
    cluster = launched(nodes("h0", np=8, max_np=8), 2)
    cluster.add_host("h1", 2)
    cluster.run(1.5)
    starts = len(cluster.starts)
    cluster.add_host("h2", 2)
    cluster.run(0.2)
    cluster.add_host("h3", 2)
    cluster.run(1.5)
    assert len(cluster.running) == 8
    assert len(cluster.starts) == starts + 1


def test_more_nodes_than_wanted_stand_by_and_take_the_place_of_a_lost_one() -> None:
    cluster = nodes("h0", "h1", "h2", "h3").run(1.0)
    assert {cluster.members[name].host for name in cluster.running} == {"h0", "h1", "h2"}
    cluster.kill_agent("h0")
    cluster.run(1.0)
    assert {cluster.members[name].host for name in cluster.running} == {"h1", "h2", "h3"}
    assert cluster.state.resets == 0


def test_one_failure_is_one_too_many_by_default() -> None:
    cluster = nodes("h0", "h1", "h2").run(1.0)
    cluster.kill("m3", code=1)
    cluster.run(1.0)
    assert cluster.ended is not None
    assert cluster.ended == (1, "a worker failed: rank 3 on h1: exit code 1")


def test_failures_that_come_together_count_once_whoever_fails() -> None:
    cluster = nodes("h0", "h1", "h2", max_restarts=1).run(1.0)
    cluster.kill(*cluster.running, code=1)
    cluster.run(1.0)
    assert cluster.state.resets == 1 and len(cluster.running) == 6
    assert cluster.starts[-1].restarts == 1
    cluster.kill(cluster.running[0], code=1)
    cluster.run(1.0)
    assert cluster.ended is not None and "--max-restarts 1 is used up" in cluster.ended[1]


def test_many_failures_in_a_row_are_restarted_if_so_many_are_allowed() -> None:
    cluster = nodes("h0", "h1", "h2", max_restarts=100).run(1.0)
    for _ in range(10):
        cluster.kill(cluster.running[0], code=1)
        cluster.run(1.0)
    assert cluster.ended is None and cluster.state.resets == 10


def test_a_lost_node_is_no_failure_and_excuses_those_that_fail_with_it() -> None:
    cluster = nodes("h0", "h1", "h2").run(1.0)
    cluster.kill("m2", code=1)  # its collective broke; that its peer's host is gone is heard later
    cluster.kill_agent("h0")
    cluster.kill("m3", code=1)
    cluster.run(1.0)
    assert cluster.ended is None and cluster.state.resets == 0
    assert {cluster.members[name].host for name in cluster.running} == {"h1", "h2"}
    assert len(cluster.running) == 4


def test_ranks_follow_the_names_of_the_hosts_if_they_are_fixed() -> None:
    cluster = nodes("h2", "h1", "h0", hosts_by_name=True).run(1.0)
    world = cluster.starts[0].world
    assert world is not None
    assert [member.host for member in world.members] == ["h0", "h0", "h1", "h1", "h2", "h2"]


def test_a_coordinator_that_is_carried_on_before_all_have_started_starts_all_anew() -> None:
    """The port at which they were to meet died with the one before."""
    cluster = nodes("h0", "h1", "h2").run(0.1)
    cluster.agents["h1"].members.pop("m2")  # the order to start it never came
    cluster.members["m2"].health = Health.GONE
    cluster.restart()
    cluster.run(3.0)
    assert cluster.ended is None and cluster.phase is Phase.STABLE
    names = set(cluster.running)
    assert names == set(cluster.world) == {f"m{number}" for number in range(6, 12)}
    assert names == set(cluster.starts[-1].members), "one order started all of them"
    assert cluster.state.resets == 0


def test_a_script_that_calls_midflight_outlives_a_lost_node_and_a_lost_worker() -> None:
    cluster = nodes("h0", "h1", "h2", uses_midflight=True)
    cluster.run_until(lambda: cluster.phase is Phase.STABLE)
    before = set(cluster.running)
    cluster.kill_agent("h1")
    cluster.run(3.0)
    assert cluster.phase is Phase.STABLE and set(cluster.running) < before
    assert cluster.state.resets == 0
    cluster.kill(cluster.running[0], code=1)
    cluster.run(5.0)
    assert cluster.ended is None and len(cluster.world) == 4


def test_failures_of_such_a_script_are_limited_if_a_limit_is_given() -> None:
    cluster = nodes("h0", "h1", "h2", uses_midflight=True, max_restarts=1, reset_limit=1)
    cluster.run_until(lambda: cluster.phase is Phase.STABLE)
    cluster.kill_agent("h1")
    cluster.run(3.0)
    for _ in range(2):
        assert cluster.ended is None
        cluster.kill(cluster.running[0], code=1)
        cluster.run(3.0)
    assert cluster.ended is not None and "--max-restarts 1" in cluster.ended[1]


def test_a_node_that_is_needed_and_leaves_stops_all_in_good_order_and_is_no_failure() -> None:
    cluster = nodes("h0", "h1", min_np=4).run(3.0)
    cluster.agents["h1"].tell(events.HostNoticed, "h1", 4.0)
    cluster.run(0.5)
    assert cluster.running == [], "they are stopped while they can still save a checkpoint"
    cluster.kill_agent("h1")
    cluster.run(3.0)
    assert cluster.ended is None and cluster.state.resets == 0
    cluster.add_host("h2", 2)
    cluster.run(3.0)
    assert {cluster.members[name].host for name in cluster.running} == {"h0", "h2"}


def test_a_member_that_ended_before_its_start_was_saved_is_not_started_again() -> None:
    """The coordinator died between hearing of the start and saving it; the agent remembers."""
    cluster = launched(nodes("h0"), 2)
    saved = cluster._saved
    cluster.kill("m0", "m1", code=0)
    cluster._saved = saved
    cluster.restart()
    cluster.run(3.0)
    assert cluster.ended == (0, "")
    assert len(cluster.starts) == 1


def test_a_node_that_died_with_the_coordinator_excuses_those_who_fail_with_it() -> None:
    cluster = launched(nodes("h0", "h1", np=4, max_np=4), 4).run(1.0)
    cluster.agents["h0"].alive = cluster.agents["h0"].connected = False
    for name in tuple(cluster.agents["h0"].members):
        cluster.members[name].health = Health.GONE
    cluster.agents["h0"].members.clear()
    cluster.restart()  # on h1, which knows that h0 has died
    cluster.client(lambda now: events.HostLost(now, "h0", dead=True))
    cluster.kill(*cluster.running, code=1)  # their collectives broke
    cluster.run(3.0)
    assert cluster.ended is None
    assert cluster.state.resets == 0
    assert {cluster.members[name].host for name in cluster.running} == {"h1"}


def test_a_node_whose_agent_was_replaced_at_once_is_no_failure() -> None:
    cluster = launched(nodes("h0", "h1", np=4, max_np=4), 4).run(31.0)
    cluster.kill_agent("h1")
    cluster.add_host("h1", 2)
    cluster.run(3.0)
    assert cluster.ended is None and cluster.state.resets == 0
    assert len(cluster.running) == 4 and "m3" not in cluster.running


def test_its_members_are_known_to_be_gone_as_soon_as_it_joins() -> None:
    """Those that fail because of them are told of at the same moment."""
    cluster = launched(nodes("h0", "h1", np=4, max_np=4), 4).run(31.0)
    cluster.kill_agent("h1")
    cluster.settle()
    cluster.handle(events.HostJoined(cluster.now, "h1", 2, "h1", ()))
    cluster.kill("m0", "m1", code=1)
    cluster.run(0.5)
    assert cluster.state.resets == 0 and cluster.phase is not Phase.FAILED


def test_nor_if_the_coordinator_was_replaced_as_well() -> None:
    cluster = launched(nodes("h0", "h1", np=4, max_np=4), 4).run(31.0)
    cluster.kill_agent("h1")
    cluster.restart()
    cluster.kill("m0", "m1", code=1)  # their collectives broke
    cluster.run(0.5)
    cluster.add_host("h1", 2)
    cluster.run(3.0)
    assert cluster.ended is None and cluster.state.resets == 0


def test_a_node_that_leaves_soon_after_the_start_has_its_workers_stopped_in_good_order() -> None:
    cluster = launched(nodes("h0", "h1"), 4)
    assert cluster.state.mode is Mode.UNKNOWN, "nobody has called Midflight so far"
    cluster.agents["h1"].tell(events.HostNoticed, "h1", 3.0)
    cluster.run(0.5)
    assert cluster.running == ["m4", "m5"], "the others start anew, without waiting for the notice"
    assert {cluster.members[name].host for name in cluster.running} == {"h0"}


def test_a_notice_after_the_end_starts_nothing_anew() -> None:
    cluster = launched(nodes("h0", "h1", "h2"), 6)
    cluster.client(events.StopAsked, "interrupted", 130)
    cluster.settle()
    assert cluster.state.mode is Mode.UNKNOWN and cluster.phase is Phase.FAILED
    starts = len(cluster.starts)
    cluster.handle(events.HostNoticed(cluster.now, "h0", 30.0))
    cluster.run(5.0)
    assert cluster.phase is Phase.FAILED
    assert len(cluster.starts) == starts
