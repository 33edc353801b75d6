"""Silence: whoever hears nothing from anybody suspects itself.

A coordinator that was paused or cut off gives up nobody; a process that hung up has a lease in
which to come back; the last ones who hold the training state are waited for.
"""

from dataclasses import replace
from typing import Any

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import Phase
from tests.coordinator.fake_members import Health
from tests.coordinator.scenario import FakeCluster, over, stable, started

HOSTS = {"h0": 2, "h1": 2, "h2": 2}


def test_a_coordinator_that_was_paused_gives_up_nobody() -> None:
    cluster = started(HOSTS, np=4)
    cluster.pause(8.0)
    cluster.run(10.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.resets == 0 and not cluster.said("lost")


def test_a_coordinator_that_was_paused_gives_the_first_members_their_time_to_start() -> None:
    cluster = FakeCluster(HOSTS, np=4, min_np=4, start_timeout=10.0, elastic_timeout=10.0)
    cluster.mute.add("m3")
    cluster.run(2.0)
    cluster.pause(30.0)
    cluster.run(1.0)
    cluster.mute.clear()
    cluster.run(5.0)
    assert cluster.phase is Phase.STABLE and cluster.state.size == 4


def test_a_paused_coordinator_waits_for_those_who_dial_again_late() -> None:
    cluster = started(HOSTS, np=4)
    cluster.now += 8.0
    cluster.hang_up("h0", "h1", "h2")
    cluster.run(2.0)
    cluster.dial_again("h0")
    cluster.run(3.0)
    cluster.dial_again("h1", "h2")
    cluster.run(10.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.resets == 0


def test_a_member_that_died_while_the_coordinator_was_paused_is_the_only_one_lost() -> None:
    cluster = started(HOSTS, np=4)
    cluster.kill("m2")
    cluster.pause(8.0)
    cluster.run(3.0)
    assert cluster.state.resets == 1
    assert {"m0", "m1", "m3"} <= set(cluster.world)
    assert cluster.run(3.0).state.size == 4


def test_a_coordinator_that_is_cut_off_from_all_hosts_gives_up_nobody() -> None:
    cluster = started(HOSTS, np=4)
    for host in HOSTS:
        cluster.cut(host)
    cluster.run(30.0)
    assert cluster.phase is Phase.STABLE
    for host in HOSTS:
        cluster.heal(host)
        cluster.run(0.7)
    cluster.run(10.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.resets == 0


def test_a_coordinator_that_nobody_speaks_to_for_the_elastic_timeout_fails_the_job() -> None:
    cluster = started(HOSTS, np=4, elastic_timeout=30.0)
    for host in HOSTS:
        cluster.cut(host)
    cluster.run(29.0)
    assert not over(cluster)
    cluster.run(10.0)
    assert cluster.phase is Phase.FAILED
    assert cluster.ended is not None and "h0" in cluster.ended[1]


def test_a_host_whose_lines_break_has_a_lease_in_which_to_come_back() -> None:
    cluster = started(HOSTS, np=4)
    cluster.hang_up("h1")
    cluster.run(4.0)
    cluster.dial_again("h1")
    cluster.run(10.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.resets == 0


def test_a_host_that_hung_up_is_given_up_soon_once_a_collective_broke() -> None:
    cluster = started(HOSTS, np=4)
    cluster.kill_agent("h1")
    cluster.run(1.5)
    assert cluster.said("lost m2, m3")
    assert cluster.state.resets == 1
    cluster.run(2.0)
    assert stable(cluster)


def test_a_host_that_hung_up_and_is_no_longer_listed_is_given_up_at_once() -> None:
    cluster = started(HOSTS, np=4)
    cluster.client(events.HostsListed, {"h0": 2, "h2": 2})
    cluster.hang_up("h1")
    cluster.run(0.3)
    assert not {"m2", "m3"} & set(cluster.state.members)


def test_a_member_that_was_let_go_is_not_one_that_the_job_could_go_on_with() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.members["m1"].stays = True
    cluster.ask(to=1)
    cluster.run_until(lambda: cluster.world == ("m0",))
    cluster.members["m0"].health = Health.STOPPED
    cluster.run(5.0)
    assert not over(cluster)
    cluster.members["m0"].health = Health.RUNNING
    cluster.run(5.0)
    assert cluster.world == ("m0",) and stable(cluster)


def begun_unheard(elastic_timeout: float, elsewhere: int = 2, **options: Any) -> FakeCluster:
    """The first world is on h0, which is cut off before its members can say that they are in it."""
    slots = {"h0": 2, "h1": elsewhere}
    cluster = FakeCluster(slots, np=2, elastic_timeout=elastic_timeout, **options)
    while cluster.state.forming is None:
        assert cluster.deliver_one()
    assert {m.host for m in cluster.state.forming.world.members} == {"h0"}
    cluster.cut("h0")
    return cluster


def test_a_first_world_that_may_have_begun_unheard_is_waited_for() -> None:
    cluster = begun_unheard(elastic_timeout=60.0).run(30.0)
    assert cluster.state.forming is not None and not cluster.said("lost")
    cluster.heal("h0")
    cluster.run(5.0)
    assert cluster.world == ("m0", "m1") and cluster.state.generation == 1
    assert stable(cluster) and cluster.state.best_step > 0


def test_a_job_begins_elsewhere_if_its_first_world_is_not_heard_for_the_elastic_timeout() -> None:
    cluster = begun_unheard(elastic_timeout=20.0).run(19.0)
    assert not cluster.said("lost")
    cluster.run(10.0)
    assert stable(cluster) and {"h1"} == {m.host for m in cluster.state.members.values()}


def test_a_restarted_coordinator_too_begins_elsewhere_after_that() -> None:
    cluster = begun_unheard(elastic_timeout=20.0).run(5.0)
    cluster.restart()
    cluster.run(50.0)
    assert stable(cluster) and {"h1"} == {m.host for m in cluster.state.members.values()}


@pytest.mark.parametrize("restarted", [False, True])
def test_and_if_it_cannot_begin_elsewhere_it_ends_after_another_elastic_timeout(
    restarted: bool,
) -> None:
    cluster = begun_unheard(elastic_timeout=20.0, elsewhere=1, min_np=2).run(5.0)
    if restarted:
        cluster.restart()
    cluster.run(25.0)
    assert cluster.said("fewer than --min-np 2") and not over(cluster)
    cluster.run(25.0)
    assert cluster.phase is Phase.FAILED
    assert cluster.said("2 members needed, 0 left, and no others came within 20 s")


def test_a_newcomer_on_a_lost_host_is_given_up_while_the_last_holder_there_is_waited_for() -> None:
    cluster = started({"h0": 1, "h1": 2}, np=2, min_np=2)
    assert cluster.state.members["m1"].host == "h1"
    cluster.mute.add("m2")
    cluster.kill("m0")
    while "m2" not in cluster.state.members:
        assert cluster.deliver_one()
    assert cluster.state.members["m2"].host == "h1"
    cluster.cut("h1")
    cluster.run(15.0)
    assert set(cluster.state.members) == {"m1", "m3"} and not over(cluster)
    cluster.heal("h1")
    cluster.run(15.0)
    assert cluster.world == ("m1", "m3") and stable(cluster)


def test_the_last_who_hold_the_state_are_waited_for_when_only_newcomers_are_heard() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.members["m0"].health = Health.STUCK  # the change is not completed
    cluster.ask(to=4)
    cluster.run(1.0)
    cluster.cut("h0")
    cluster.run(30.0)
    assert not over(cluster)
    cluster.members["m0"].health = Health.RUNNING
    cluster.heal("h0")
    cluster.run(10.0)
    assert {"m0", "m1"} <= set(cluster.world)


def test_the_only_member_may_be_paused() -> None:
    cluster = started({"h0": 2}, np=1)
    cluster.members["m0"].health = Health.STOPPED
    cluster.run(30.0)
    cluster.members["m0"].health = Health.RUNNING
    cluster.run(3.0)
    assert cluster.world == ("m0",)
    assert cluster.state.resets == 0


def test_a_paused_member_is_waited_for_if_the_others_left_at_a_switch_and_may_be_behind() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.ask(names=("m1",))
    cluster.run_until(lambda: cluster.phase is Phase.SWITCHING)
    cluster.members["m0"].health = Health.STOPPED  # alone in the world after the switch
    cluster.restart()
    cluster.run(10.0)
    assert not over(cluster), "m1's state may be old, so m0 is the last who holds the job's"
    cluster.members["m0"].health = Health.RUNNING
    cluster.run(10.0)
    assert cluster.world == ("m0",) and stable(cluster)


def test_all_members_may_be_paused_at_once() -> None:
    cluster = started(HOSTS, np=4)
    for member in cluster.members.values():
        member.health = Health.STOPPED
    cluster.run(30.0)
    for member in cluster.members.values():
        member.health = Health.RUNNING
    cluster.run(3.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.resets == 0


def test_a_member_whose_line_broke_is_waited_for_while_its_process_runs() -> None:
    cluster = started(HOSTS, np=3)
    cluster.members["m1"].health = Health.BUSY
    cluster.members["m1"].connected = False
    cluster.members["m1"].tell(events.Disconnected)
    cluster.run(30.0)
    assert "m1" in cluster.world
    cluster.members["m1"].health = Health.RUNNING
    cluster.members["m1"].dial()
    cluster.run(3.0)
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.state.resets == 0


def test_a_coordinator_killed_after_it_ended_a_world_forms_the_next_when_it_is_back() -> None:
    """Nobody is missing, so nobody has anything to report but what it was told."""
    cluster = started(HOSTS, np=3)
    cluster.store_works = False
    cluster.members["m1"].break_off()
    cluster.run_until(lambda: cluster.phase is Phase.RECOVERING, 5.0)
    cluster.restart()
    cluster.store_works = True
    done = cluster.promises.done
    cluster.run(3.0)
    assert stable(cluster)
    assert cluster.promises.done > done


def test_those_who_settled_early_are_not_stuck_while_others_receive_the_state() -> None:
    cluster = FakeCluster(HOSTS, np=3)
    cluster.run_until(lambda: stable(cluster)).run(1.0)
    cluster.training.slow_to_enter.add("m1")  # it receives gigabytes
    cluster.kill("m2")
    cluster.run(60.0)
    assert {"m0", "m1"} <= set(cluster.state.members)
    assert not cluster.said("never ended there")


def survivor_in_backward(seconds: float, step_seconds: float) -> bool:
    """Whether one is still there that has so long been in a step of the world before."""
    cluster = started(HOSTS, np=3)
    cluster.training.slow_to_enter |= {"m0", "m1"}
    cluster.kill("m2")
    cluster.run_until(lambda: cluster.state.forming is not None)
    rate = 1 / step_seconds if step_seconds else 0.0
    state, now = cluster.state, cluster.now
    state = replace(state, members={n: replace(m, rate=rate) for n, m in state.members.items()})
    for _ in range(round(seconds / 0.5)):
        now += 0.5
        beats = {
            name: events.Beating(state.best_step, state.best_step, name == "m1", now)
            for name in ("m0", "m1")
        }
        state, _ = handle(state, events.Ticked(now, beats, frozenset(HOSTS)))
    return "m1" in state.members


@pytest.mark.parametrize(("step_seconds", "patience"), [(0.1, 5.2), (10.0, 25.0), (0.0, 65.0)])
def test_a_survivor_may_come_to_the_end_of_a_long_backward_pass(
    step_seconds: float, patience: float
) -> None:
    """It finds out there that the world is over, unless a collective never fails at all."""
    assert survivor_in_backward(patience - 1.0, step_seconds)
    assert not survivor_in_backward(patience + 1.5, step_seconds)


def test_a_transfer_may_take_longer_than_every_timeout_as_long_as_it_comes_on() -> None:
    cluster = started(HOSTS, np=3, elastic_timeout=20.0, hang_timeout=10.0)
    slow = cluster.members["m1"]
    cluster.training.slow_to_enter.add("m1")  # it receives a hundred gigabytes
    cluster.kill("m2")
    for _ in range(60):
        slow.moved += 1 << 30
        cluster.run(1.0)
    assert not over(cluster) and "m1" in cluster.running
    cluster.run(25.0)
    assert over(cluster), "one that stands still is given up"


def test_a_planned_change_may_move_state_for_longer_than_the_hang_timeout() -> None:
    cluster = started(HOSTS, np=2, hang_timeout=10.0)
    cluster.training.slow_to_enter |= {"m0", "m2"}  # one gives, the other receives
    cluster.ask(add=1)
    cluster.run_until(lambda: cluster.phase is Phase.SWITCHING)
    for _ in range(60):
        cluster.members["m0"].moved += 1 << 30
        cluster.run(1.0)
    assert cluster.phase is Phase.SWITCHING and cluster.state.resets == 0
