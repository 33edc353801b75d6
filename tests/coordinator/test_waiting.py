"""Fewer than the minimum: memory is kept, others are waited for, and there is an end to it."""

from midflight.coordinator.core.state import Phase
from midflight.protocol.messages import Dismiss
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, stable, started


def below_minimum(**spec: float) -> FakeCluster:
    """Two of three are dead, and there is no room for others."""
    cluster = started({"h0": 1, "h1": 2}, **{"np": 3, "min_np": 2, **spec})
    cluster.kill_agent("h1")
    return cluster.run_until(lambda: cluster.phase is Phase.WAITING, 3.0)


def test_survivors_that_are_too_few_keep_their_memory_and_wait() -> None:
    cluster = below_minimum()
    assert cluster.running == ["m0"]
    assert cluster.said("1 member left, fewer than --min-np 2")
    assert cluster.said("wait up to 600 s for others")


def test_a_world_is_formed_again_as_soon_as_enough_are_there() -> None:
    cluster = below_minimum()
    done = cluster.promises.done
    cluster.run(30.0)
    cluster.add_host("h2", 1)
    cluster.run(1.0)
    assert cluster.world == ("m0", "m3")
    assert cluster.promises.done > done
    cluster.add_host("h3", 1)
    cluster.run(2.0)
    assert stable(cluster), "and the rest comes by a planned change"
    assert cluster.state.resets == 1


def test_the_job_fails_after_the_elastic_timeout_in_one_line() -> None:
    cluster = below_minimum(elastic_timeout=40.0)
    cluster.run(41.0)
    assert cluster.ended is not None
    code, reason = cluster.ended
    assert code == 1
    assert "2 members needed, 1 left, and no others came within 40 s" in reason
    assert "h1 0/2 slots used, not connected" in reason
    assert cluster.heard("m0", Dismiss)[-1].failed
    assert sum(reason in line for line in cluster.lines) == 1


def test_a_later_shortage_is_waited_out_from_its_own_beginning() -> None:
    cluster = below_minimum(elastic_timeout=30.0)
    cluster.run(20.0)
    cluster.add_host("h2", 1)
    cluster.run(5.0)
    assert cluster.world == ("m0", "m3")
    cluster.kill_agent("h2")
    cluster.run(20.0)
    assert cluster.phase is Phase.WAITING
    cluster.run(12.0)
    assert cluster.ended is not None


def test_the_time_of_waiting_is_counted_from_its_beginning_however_often_a_newcomer_fails() -> None:
    cluster = below_minimum(elastic_timeout=60.0)
    cluster.add_host("h2", 1)
    for number in range(3, 30):
        cluster.fate[f"m{number}"] = Fate.DIES
    cluster.run(61.0)
    assert cluster.ended is not None


def test_a_newcomer_that_dies_in_the_new_world_before_a_step_does_not_reset_the_clock() -> None:
    cluster = below_minimum(elastic_timeout=30.0)
    cluster.add_host("h2", 1)
    for _ in range(40):
        if cluster.ended:
            break
        newest = f"m{cluster.state.serial}"
        cluster.fate[newest] = Fate.HANGS
        cluster.run(1.0)
        if newest in cluster.members and cluster.members[newest].health is Health.RUNNING:
            cluster.members[newest].dial()
            cluster.members[newest].health = Health.STUCK
            cluster.settle()
            cluster.kill(newest)
    assert cluster.ended is not None
    assert "no others came within 30 s" in cluster.ended[1]


def test_members_that_were_on_their_way_are_used() -> None:
    cluster = started({"h0": 2, "h1": 3}, np=3, min_np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1, timeout=300.0)
    cluster.kill("m2")
    cluster.run(0.5)
    assert cluster.phase is Phase.WAITING
    cluster.members["m3"].dial()
    cluster.run(1.0)
    assert set(cluster.world) >= {"m0", "m1", "m3"}
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0] and cluster.state.size == 4


def test_a_request_that_times_out_meanwhile_leaves_the_waiting_as_it_is() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=3, min_np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1, timeout=5.0)
    cluster.kill("m2")
    cluster.run(6.0)
    assert not cluster.answers[ticket][0]
    assert cluster.phase is Phase.WAITING
    cluster.run_until(lambda: stable(cluster))


def test_a_joiner_that_dies_meanwhile_leaves_the_waiting_as_it_is() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=3, min_np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1)
    cluster.kill("m2")
    cluster.run(0.5)
    cluster.kill("m3")
    cluster.run(0.5)
    assert not cluster.answers[ticket][0]
    assert cluster.phase is Phase.WAITING
    cluster.run_until(lambda: stable(cluster))


def test_the_last_who_holds_the_state_may_not_die() -> None:
    cluster = below_minimum()
    cluster.add_host("h2", 1)
    cluster.fate["m3"] = Fate.HANGS
    cluster.run(0.5)
    cluster.kill("m0")
    cluster.members["m3"].dial()
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "no remaining member holds the training state" in cluster.ended[1]


def test_more_are_not_started_than_are_wanted() -> None:
    cluster = below_minimum()
    cluster.add_host("h2", 9)
    cluster.run(3.0)
    assert stable(cluster)
    assert len(cluster.running) == 3


def test_a_late_newcomer_joins_by_a_planned_change_or_goes() -> None:
    cluster = below_minimum()
    cluster.fate["m4"] = Fate.HANGS
    cluster.add_host("h2", 2)
    cluster.run(1.0)
    assert cluster.world == ("m0", "m3")
    ticket = cluster.ask(to=2)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.running == ["m0", "m3"]
