"""Deaths, at every moment: survivors go on, nothing is lost but the step in flight."""

from collections.abc import Callable
from typing import Any

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import ChangeStage, Phase
from midflight.protocol.messages import Form, Over
from tests.coordinator.fake_members import Health
from tests.coordinator.scenario import FakeCluster, stable, started

HOSTS = {"h0": 3, "h1": 3, "h2": 3}


def preparing(cluster: FakeCluster) -> int:
    """A scale-out whose joiners are there, and whose group is being connected."""
    cluster.mute.add("m1")
    ticket = cluster.ask(add=2)
    cluster.mute.clear()
    assert cluster.state.change is not None
    assert cluster.state.change.stage is ChangeStage.CONNECTING
    return ticket


def switching(cluster: FakeCluster, **wish: Any) -> int:
    """A change whose step is published, and not reached yet."""
    ticket = cluster.ask(**(wish or {"add": 2}))
    assert cluster.phase is Phase.SWITCHING
    return ticket


def half_settled(cluster: FakeCluster, **wish: Any) -> int:
    """A change whose step has been passed; not all have said so."""
    ticket = switching(cluster, **wish)
    cluster.mute = {"m1"}
    cluster.run(0.4)
    assert cluster.phase is Phase.SWITCHING
    assert cluster.state.change is not None and cluster.state.change.settled
    cluster.mute.clear()
    return ticket


def test_survivors_are_told_that_the_world_is_over_and_then_the_next_one() -> None:
    cluster = started({"h0": 3}, np=3)
    cluster.kill("m1")
    cluster.settle()
    over, form = cluster.members["m0"].heard[-2:]
    assert over == Over(1)
    assert isinstance(form, Form) and form.world.names == ("m0", "m2")
    assert cluster.said("lost m1: killed by SIGKILL")


@pytest.mark.parametrize("name", ["m0", "m1", "m2"])
def test_any_member_may_die_rank_0_included(name: str) -> None:
    cluster = started(HOSTS, np=3)
    done = cluster.promises.done
    cluster.kill(name)
    cluster.run(2.0)
    assert stable(cluster)
    assert name not in cluster.world
    assert cluster.promises.done > done
    assert cluster.state.resets == 1


def test_a_world_is_valid_only_when_all_of_its_members_are_in_it() -> None:
    cluster = started({"h0": 4}, np=4)
    cluster.mute = {"m3"}
    cluster.kill("m1")
    cluster.settle()
    assert cluster.members["m0"].generation == 2
    assert cluster.phase is Phase.RECOVERING and cluster.state.world is not None
    assert cluster.state.world.generation == 1
    cluster.client(events.Settled, "m99", 2, 5)
    assert cluster.phase is Phase.RECOVERING
    cluster.mute.clear()
    cluster.settle()
    assert cluster.world == ("m0", "m2", "m3")


def test_two_that_die_at_once_are_one_failure() -> None:
    cluster = started({"h0": 4}, np=4)
    cluster.kill("m0", "m3")
    cluster.settle()
    assert cluster.world == ("m1", "m2")
    assert cluster.state.resets == 1


def test_ten_of_a_large_world_that_die_one_after_another_do_not_fail_the_job() -> None:
    cluster = started({f"h{n}": 4 for n in range(10)}, np=30, max_np=40)
    for number in range(10):
        cluster.kill(f"m{3 * number}")
        cluster.settle()
    cluster.run(1.0)
    assert cluster.ended is None
    assert cluster.state.size >= 20
    assert cluster.state.resets <= 10


def test_an_agent_that_dies_with_all_its_members_is_one_failure() -> None:
    cluster = started(HOSTS, np=5)
    cluster.kill_agent("h0")
    cluster.run_until(lambda: cluster.world == ("m3", "m4"), 2.0)
    assert cluster.state.resets == 1
    cluster.run(2.0)
    assert stable(cluster)


def test_an_agent_of_many_members_is_not_taken_for_worlds_that_complete_no_step() -> None:
    cluster = started({"h0": 8, "h1": 2}, np=10, max_np=10)
    cluster.kill_agent("h0")
    cluster.run(1.0)
    assert cluster.ended is None
    assert cluster.world == ("m8", "m9")


def test_a_death_while_joiners_start_lets_the_change_begin_anew_with_what_is_left() -> None:
    cluster = started({"h0": 3, "h1": 3}, np=3)
    ticket = cluster.ask(add=3, timeout=30.0)
    cluster.kill("m1")
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0]
    assert cluster.state.size == 6 and "m1" not in cluster.world


def test_a_death_while_the_coming_world_is_connected_takes_the_preparation_back() -> None:
    cluster = started(HOSTS, np=3)
    ticket = preparing(cluster)
    cluster.kill("m2")
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert cluster.state.size == 5 and "m2" not in cluster.world
    assert isinstance(cluster.members["m3"].heard[1], Over), "joiners forget what they prepared"


@pytest.mark.parametrize("name", ["m0", "m2", "m3"])
@pytest.mark.parametrize("moment", [switching, half_settled])
def test_a_death_during_the_switch_keeps_all_others(
    moment: Callable[[FakeCluster], int], name: str
) -> None:
    cluster = started(HOSTS, np=3)
    ticket = moment(cluster)
    cluster.kill(name)
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert stable(cluster) and cluster.state.size == 5
    assert name not in cluster.world
    assert set(cluster.world) >= {"m0", "m1", "m2", "m3", "m4"} - {name}


@pytest.mark.parametrize("moment", [switching, half_settled])
def test_a_leaver_that_dies_during_the_switch_is_gone_as_was_wished(
    moment: Callable[..., int],
) -> None:
    cluster = started(HOSTS, np=3)
    ticket = moment(cluster, remove=1)
    cluster.kill("m2")
    cluster.run(2.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0", "m1")
    assert cluster.state.wanted == 2


def test_a_leaver_that_has_left_may_die_without_anybody_noticing() -> None:
    cluster = started(HOSTS, np=3)
    half_settled(cluster, remove=1)
    cluster.kill("m2")
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1")
    assert cluster.state.resets == 0


def test_a_leaver_hands_the_state_on_when_the_one_that_stays_dies_before_the_switch() -> None:
    cluster = started(HOSTS, np=2)
    ticket = switching(cluster, add=1, names=("m0",))
    cluster.kill("m1")
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert "m0" not in cluster.world and cluster.state.size == 2


def test_a_leaver_s_old_state_does_not_come_back_after_the_others_went_on() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.ask(names=("m1",))
    cluster.mute = {"m1"}
    cluster.run(1.0)
    assert cluster.phase is Phase.SWITCHING and cluster.promises.done > 12
    cluster.kill("m0")
    cluster.mute.clear()
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "no remaining member holds the training state" in cluster.ended[1]


def test_joiners_and_leavers_together_do_not_exceed_the_maximum_after_a_failed_switch() -> None:
    cluster = started(HOSTS, np=4, max_np=4)
    ticket = switching(cluster, add=2, names=("m0", "m1"))
    cluster.kill("m2")
    cluster.settle()
    assert cluster.state.forming is None and cluster.state.size <= 4
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert cluster.state.size == 4


def test_a_second_death_while_the_next_world_is_formed_forms_another() -> None:
    cluster = started(HOSTS, np=4)
    cluster.members["m2"].health = Health.STUCK
    cluster.kill("m1")
    cluster.settle()
    assert cluster.phase is Phase.RECOVERING
    cluster.kill("m2")
    cluster.settle()
    assert cluster.world == ("m0", "m3")
    assert cluster.state.resets == 1, "it was the same failure still"


def test_a_joiner_that_dies_after_it_was_taken_into_the_next_world_breaks_that_world() -> None:
    cluster = started(HOSTS, np=3)
    ticket = switching(cluster, add=1)
    cluster.members["m1"].health = Health.STUCK
    cluster.kill("m2")
    cluster.settle()
    assert cluster.state.forming is not None and "m3" in cluster.state.forming.world
    cluster.kill("m3")
    cluster.settle()
    cluster.members["m1"].health = Health.RUNNING
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert stable(cluster) and set(cluster.world) >= {"m0", "m1"}


def test_a_broken_collective_with_nobody_missing_forms_the_world_anew() -> None:
    cluster = started(HOSTS, np=3)
    for name in ("m0", "m1", "m2"):
        cluster.members[name].break_off()
    cluster.run(0.2)
    assert cluster.phase is Phase.STABLE
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.state.world is not None and cluster.state.world.generation == 2
    assert cluster.said("nobody is missing")


def test_a_broken_collective_is_heard_of_while_a_change_is_prepared_or_was_taken_back() -> None:
    cluster = started({"h0": 5}, np=3)
    ticket = preparing(cluster)
    cluster.kill("m3")
    cluster.settle()
    assert not cluster.answers[ticket][0] and cluster.state.generation == 2
    cluster.members["m1"].break_off()
    cluster.run(1.0)
    assert cluster.state.world is not None and cluster.state.world.generation == 3


def test_a_broken_collective_of_a_former_world_means_nothing() -> None:
    cluster = started(HOSTS, np=3)
    cluster.kill("m2")
    cluster.run(2.0)
    cluster.client(events.Broke, "m0", 1, 5, "connection reset by peer")
    generation = cluster.state.generation
    cluster.run(2.0)
    assert cluster.state.generation == generation


def test_worlds_that_break_again_and_again_without_a_step_fail_the_job() -> None:
    cluster = started(HOSTS, np=2)
    for _ in range(8):
        for name in ("m0", "m1"):
            if not cluster.ended:
                cluster.members[name].break_off()
        cluster.members["m1"].health = Health.STUCK
        cluster.run(0.4)
        cluster.members["m1"].health = Health.RUNNING
        cluster.settle()
    assert cluster.ended is not None
    assert "5 worlds in a row completed no step" in cluster.ended[1]


def test_the_reset_limit_ends_the_job_with_the_last_reason() -> None:
    cluster = started(HOSTS, np=3, reset_limit=1)
    cluster.kill("m2")
    cluster.run(2.0)
    assert cluster.ended is None
    cluster.kill("m1")
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "--reset-limit 1" in cluster.ended[1] and "m1: killed by SIGKILL" in cluster.ended[1]


def test_a_request_that_times_out_in_the_moment_of_a_failure_takes_nobody_out_of_the_world() -> (
    None
):
    cluster = started(HOSTS, np=2)
    switching(cluster, add=1, timeout=1.0)
    lost = cluster.members["m1"]
    lost.connected = False
    lost.health = Health.STUCK
    lost.tell(events.Disconnected)
    cluster.run(7.0)
    assert set(cluster.world) >= {"m0", "m2"}
    assert {"m0", "m2"} <= set(cluster.running)


def test_an_exception_on_one_rank_is_named_and_its_host_avoided() -> None:
    cluster = started(HOSTS, np=4)
    cluster.members["m3"].tell(events.Failed, "Traceback\nValueError: bad shard", "ValueError")
    cluster.settle()
    cluster.kill("m3", code=1)
    cluster.run(2.0)
    assert cluster.said("lost m3: its script raised ValueError: bad shard")
    assert stable(cluster)
    assert cluster.state.hosts["h1"].failures == 1
    assert cluster.members["m4"].host != "h1"


def test_an_exception_on_all_ranks_fails_the_job_once_with_it() -> None:
    cluster = started({"h0": 3, "h1": 3}, np=3)
    for name in ("m0", "m1", "m2"):
        cluster.members[name].tell(events.Failed, "Traceback\nValueError: oh", "ValueError")
    cluster.settle()
    for name in ("m0", "m1", "m2"):
        cluster.kill(name, code=1)
    cluster.run(2.0)
    assert cluster.ended is not None
    code, reason = cluster.ended
    assert code == 1
    assert "ValueError: oh" in reason
    assert sum("no remaining member" in line for line in cluster.lines) == 1


def test_the_whole_world_dead_fails_the_job_even_if_newcomers_wait() -> None:
    cluster = started(HOSTS, np=2)
    cluster.fate["m2"] = cluster.fate["m2"].HANGS
    ticket = cluster.ask(add=1)
    cluster.kill("m0", "m1")
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "no remaining member holds the training state" in cluster.ended[1]
    assert not cluster.answers[ticket][0]


def test_a_member_that_lost_its_line_for_a_moment_is_not_left_out() -> None:
    cluster = started(HOSTS, np=3)
    flaky = cluster.members["m1"]
    flaky.connected = False
    flaky.tell(events.Disconnected)
    cluster.settle()
    cluster.kill("m2")
    cluster.settle()
    assert cluster.phase is Phase.RECOVERING and cluster.state.forming is None
    told = len(flaky.heard)
    flaky.dial()
    cluster.run(1.0)
    assert flaky.heard[told] == Over(1), "it may be blocked in a world that is no more"
    assert set(cluster.world) >= {"m0", "m1"}


def test_a_member_that_does_not_come_back_holds_the_others_up_for_no_longer_than_the_lease() -> (
    None
):
    cluster = started(HOSTS, np=3)
    gone = cluster.members["m1"]
    gone.connected = False
    gone.health = Health.STUCK
    gone.tell(events.Disconnected)
    cluster.settle()
    cluster.kill("m2")
    cluster.run(4.5)
    assert cluster.phase is Phase.RECOVERING
    cluster.run(2.0)
    assert cluster.phase is Phase.STABLE
    assert "m1" not in cluster.world and "m1" not in cluster.running
