"""Scripts that never call Midflight: every change stops all processes and starts them again."""

from typing import Any

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Mode, Phase
from tests.coordinator.scenario import FakeCluster

HOSTS = {"h0": 2, "h1": 2, "h2": 2}


def plain(hosts: dict[str, int] | None = None, **spec: Any) -> FakeCluster:
    """A job of a script that knows nothing of Midflight, and has been taken for one."""
    cluster = FakeCluster(hosts or HOSTS, **{"np": 3, "start_timeout": 5.0, **spec})
    cluster.uses_midflight = False
    return cluster.run_until(lambda: cluster.state.mode is Mode.RESTART)


def exit_all(cluster: FakeCluster, code: int) -> None:
    cluster.kill(*cluster.running, code=code)
    cluster.run(1.0)


def test_ranks_are_given_at_birth() -> None:
    cluster = plain()
    start = cluster.starts[0]
    assert start.members == ("m0", "m1", "m2")
    assert start.world is not None
    assert [start.world.rank(name) for name in start.members] == [0, 1, 2]
    assert [start.world.local_rank(name) for name in start.members] == [0, 1, 0]
    assert start.restarts == 0


def test_the_job_succeeds_when_all_have_ended_with_0() -> None:
    cluster = plain()
    cluster.kill("m0", code=0)
    cluster.run(5.0)
    assert cluster.ended is None
    cluster.kill("m1", "m2", code=0)
    cluster.run(0.5)
    assert cluster.ended == (0, "")


def test_a_script_that_ends_before_anything_is_known_of_it_has_succeeded_too() -> None:
    cluster = FakeCluster(HOSTS, np=3)
    cluster.uses_midflight = False
    cluster.settle()
    exit_all(cluster, 0)
    assert cluster.ended == (0, "")


def test_one_failure_restarts_all() -> None:
    cluster = plain()
    cluster.kill("m1", code=1, tail="RuntimeError: oops\n")
    cluster.run(0.3)
    assert cluster.running == ["m0", "m2"], "the others are given a moment to fail as well"
    cluster.run(1.0)
    assert cluster.running == ["m3", "m4", "m5"]
    start = cluster.starts[-1]
    assert start.world is not None and start.world.names == ("m3", "m4", "m5")
    assert start.restarts == 1
    assert cluster.said("lost m1: exit code 1: RuntimeError: oops")


@pytest.mark.parametrize("code", [1, 2])
def test_when_all_fail_the_job_fails_once(code: int) -> None:
    cluster = plain()
    exit_all(cluster, code)
    assert cluster.ended is not None
    assert cluster.ended[0] == 1
    assert f"all members failed; the last: m2: exit code {code}" in cluster.ended[1]
    assert len(cluster.starts) == 1


def test_a_member_that_is_killed_may_take_all_others_with_it() -> None:
    """Their collective breaks at once, and each of them ends with an error."""
    cluster = plain()
    cluster.kill("m1")
    cluster.run(0.1)
    cluster.kill("m0", "m2", code=1, tail="RuntimeError: Connection closed by peer\n")
    cluster.run(1.0)
    assert cluster.ended is None and cluster.state.resets == 1
    assert cluster.running == ["m3", "m4", "m5"]
    exit_all(cluster, 1)
    assert cluster.ended is not None, "this time nobody was killed"


def test_the_job_does_not_succeed_because_the_others_end_right_after_a_failure() -> None:
    cluster = plain()
    cluster.kill("m1", code=1, tail="OSError: no space left\n")
    cluster.kill("m0", "m2", code=0)
    cluster.run(2.0)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert "m1: exit code 1: OSError: no space left" in cluster.ended[1]


def test_the_loss_of_a_host_where_all_have_finished_restarts_nobody() -> None:
    cluster = plain()
    cluster.kill("m2", code=0)
    cluster.kill_agent("h1")
    cluster.run(10.0)
    assert cluster.running == ["m0", "m1"]
    cluster.kill("m0", "m1", code=0)
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_a_connection_that_breaks_restarts_nobody_if_its_agent_dials_again() -> None:
    cluster = plain()
    before = cluster.running
    cluster.hang_up("h0")
    cluster.run(0.3)
    cluster.dial_again("h0")
    cluster.run(10.0)
    assert cluster.running == before
    assert cluster.state.resets == 0


def test_an_agent_that_dies_with_all_members_restarts_them_elsewhere() -> None:
    cluster = plain({"h0": 3}, start_timeout=5.0)
    cluster.add_host("h1", 3)
    cluster.settle()
    cluster.kill_agent("h0")
    cluster.run(2.0)
    assert {cluster.members[name].host for name in cluster.running} == {"h1"}


def test_a_host_that_falls_silent_restarts_the_others() -> None:
    cluster = plain()
    cluster.cut("h0")
    cluster.run(8.0)
    assert cluster.ended is None
    assert {m.host for m in cluster.state.members.values()} <= {"h1", "h2"}


def test_quick_failures_in_a_row_fail_the_job() -> None:
    cluster = plain(cooldown_min=0.5, cooldown_max=1.0)
    for _ in range(3):
        cluster.run_until(lambda: cluster.ended is not None or len(cluster.running) == 3)
        cluster.kill(cluster.running[0], code=1)
        cluster.run(2.0)
    assert cluster.ended is not None
    assert "3 failures in a row" in cluster.ended[1]


def test_the_reset_limit_holds_here_too() -> None:
    cluster = plain(reset_limit=0)
    cluster.kill("m1", code=1)
    cluster.run(2.0)
    assert cluster.ended is not None
    assert "--reset-limit 0" in cluster.ended[1]


def test_a_resize_restarts_with_the_new_size() -> None:
    cluster = plain()
    ticket = cluster.ask(to=5)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert len(cluster.running) == 5 and cluster.state.wanted == 5
    assert cluster.state.resets == 0


def test_a_resize_that_does_not_fit_is_refused_and_nothing_is_stopped() -> None:
    cluster = plain()
    ticket = cluster.ask(to=8)
    cluster.run(1.0)
    assert "no room for 8 members" in cluster.answers[ticket][1]
    assert cluster.running == ["m0", "m1", "m2"]


def test_a_resize_to_the_size_it_has_restarts_nobody() -> None:
    cluster = plain()
    ticket = cluster.ask(to=3)
    cluster.run(3.0)
    assert cluster.answers[ticket] == (True, "the job has 3 members already")
    assert cluster.running == ["m0", "m1", "m2"]


def test_a_resize_that_needs_the_slots_of_a_lost_host_is_refused() -> None:
    cluster = plain({"h0": 2, "h1": 1}, np=2)
    cluster.kill_agent("h0")
    cluster.run_until(lambda: cluster.state.suspicion is not None)
    ticket = cluster.ask(to=3)
    cluster.run(0.2)
    assert "no room for 3 members" in cluster.answers[ticket][1]


def test_a_resize_while_a_host_dials_again_counts_its_members() -> None:
    cluster = plain({"h0": 3})
    cluster.hang_up("h0")
    ticket = cluster.ask(to=2)
    cluster.run(0.2)
    cluster.dial_again("h0")
    cluster.run(3.0)
    assert cluster.answers[ticket][0] and len(cluster.running) == 2


def test_a_resize_right_after_a_failure_restarts_once() -> None:
    cluster = plain()
    cluster.kill("m1", code=1)
    cluster.run(0.2)
    cluster.ask(to=2)
    cluster.run(3.0)
    assert len(cluster.starts) == 2
    assert len(cluster.running) == 2


def test_a_restart_after_some_have_finished_does_not_wait_for_those() -> None:
    cluster = plain()
    cluster.kill("m0", code=0)
    cluster.run(1.0)
    cluster.kill("m1", code=1)
    cluster.run(2.0)
    assert cluster.running == ["m3", "m4", "m5"]


def test_one_that_fails_after_all_others_have_finished_fails_the_job() -> None:
    cluster = plain()
    cluster.kill("m0", "m1", code=0)
    cluster.run(1.0)
    cluster.kill("m2", code=1)
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "m2 failed, after the others had finished" in cluster.ended[1]


def test_what_has_been_done_is_not_done_again_because_there_is_room() -> None:
    cluster = plain({"h0": 2}, np=3, min_np=2)
    assert cluster.running == ["m0", "m1"]
    cluster.kill("m0", code=0)
    cluster.add_host("h1", 2)
    cluster.run(3.0)
    assert cluster.running == ["m1"]
    cluster.kill("m1", code=0)
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_it_grows_by_a_restart_when_there_is_room() -> None:
    cluster = plain({"h0": 2}, np=3, min_np=2)
    cluster.add_host("h1", 2)
    cluster.run(1.0)
    assert len(cluster.running) == 3


def test_without_room_for_the_minimum_it_waits_and_then_fails() -> None:
    cluster = plain({"h0": 3}, min_np=3, elastic_timeout=60.0, cooldown_min=30.0)
    cluster.kill_agent("h0")
    cluster.run(50.0)
    assert cluster.ended is None
    cluster.run(20.0)
    assert cluster.ended is not None
    assert "3 members needed, 0 fit" in cluster.ended[1]


def test_a_process_that_was_started_after_the_order_to_stop_it_is_stopped_too() -> None:
    cluster = plain()
    member = cluster.members["m2"]
    agent = cluster.agents["h1"]
    del agent.members["m2"]  # the agent has not been told of it yet
    cluster.ask(to=2)
    assert cluster.phase is Phase.RESTARTING
    agent.members["m2"] = member
    agent.tell(events.Started, "m2", member.pid)
    cluster.run(1.0)
    assert len(cluster.running) == 2


def test_a_script_that_dials_in_while_it_is_being_stopped_changes_nothing() -> None:
    cluster = plain()
    cluster.uses_midflight = True
    before = cluster.members["m0"]
    cluster.agents["h1"].connected = False  # the order to stop m2 does not arrive
    cluster.kill("m1", code=1)
    cluster.run(0.8)
    assert cluster.phase is Phase.RESTARTING
    cluster.members["m2"].dial()
    cluster.settle()
    assert cluster.phase is Phase.RESTARTING
    cluster.agents["h1"].dial()
    cluster.run(2.0)
    assert cluster.state.mode is Mode.ELASTIC
    assert before.name not in cluster.world and cluster.state.size == 3


def test_a_job_whose_hosts_all_cool_for_longer_than_it_waits_fails_at_once() -> None:
    cluster = plain({"h0": 3}, cooldown_min=86400.0, cooldown_max=86400.0, order=("h0",))
    cluster.kill("m1", code=1)
    cluster.run(5.0)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert "cooling down" in cluster.ended[1]


def test_a_script_that_dials_in_after_the_end_starts_nothing_anew() -> None:
    cluster = plain()
    cluster.client(events.StopAsked, "interrupted", 130)
    cluster.client(events.Joined, "m0", 1, 0, 0)
    cluster.run(5.0)
    assert cluster.phase is Phase.FAILED and cluster.saved.phase is Phase.FAILED
