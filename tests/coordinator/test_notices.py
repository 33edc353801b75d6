"""Notices: a member or a host that is going leaves by a planned change, in time."""

from midflight.coordinator.core import commands as do
from midflight.coordinator.core import events
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import Phase
from midflight.protocol.messages import Dismiss, Over, Switch
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, stable, started

HOSTS = {"h0": 2, "h1": 2, "h2": 2}


def notice(cluster: FakeCluster, *names: str, seconds: float = 30.0) -> None:
    for name in names:
        cluster.members[name].tell(events.Noticed, seconds)
    cluster.settle()


def host_notice(cluster: FakeCluster, host: str, seconds: float = 30.0) -> None:
    cluster.agents[host].tell(events.HostNoticed, host, seconds)
    cluster.settle()


def untouched(cluster: FakeCluster, name: str) -> bool:
    return not cluster.heard(name, Over)


def test_a_member_with_a_notice_leaves_at_a_step_boundary_and_is_replaced() -> None:
    cluster = started(HOSTS, np=3)
    notice(cluster, "m1")
    cluster.run(1.0)
    assert cluster.heard("m1", Dismiss) and not cluster.heard("m1", Dismiss)[0].failed
    assert cluster.world == ("m0", "m2", "m3")
    assert untouched(cluster, "m0")
    assert cluster.state.resets == 0 and cluster.state.wanted == 3


def test_a_host_with_a_notice_is_emptied_and_not_used_again() -> None:
    cluster = started(HOSTS, np=3)
    host_notice(cluster, "h0")
    cluster.run(2.0)
    assert stable(cluster)
    assert {m.host for m in cluster.state.members.values()} == {"h1", "h2"}
    assert untouched(cluster, "m2")


def test_all_members_with_a_notice_hand_over_to_new_ones_first() -> None:
    cluster = started(HOSTS, np=2, max_np=2)
    host_notice(cluster, "h0")
    cluster.run(2.0)
    assert stable(cluster)
    assert set(cluster.world).isdisjoint({"m0", "m1"})
    assert cluster.state.resets == 0


def test_a_notice_while_all_are_being_replaced_is_followed_although_they_are_many() -> None:
    cluster = started({"h0": 3, "h1": 3}, np=3, max_np=3)
    ticket = cluster.ask(add=3, names=("m0", "m1", "m2"))
    assert cluster.phase is Phase.SWITCHING
    notice(cluster, "m4")
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert not {"m0", "m1", "m2", "m4"} & set(cluster.world)


def test_a_single_member_hands_over_if_there_is_room() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=1)
    notice(cluster, "m0")
    cluster.run(1.0)
    assert cluster.world == ("m1",)


def test_a_single_member_without_room_elsewhere_ends_with_an_error() -> None:
    cluster = started({"h0": 1}, np=1)
    notice(cluster, "m0")
    cluster.run(1.0)
    assert cluster.heard("m0", Dismiss)[-1].failed
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_a_notice_that_would_go_below_the_minimum_becomes_a_failure_like_any_other() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, min_np=2)
    notice(cluster, "m1", seconds=5.0)
    cluster.run(4.0)
    assert cluster.world == ("m0", "m1")
    cluster.kill("m1", code=-15)
    cluster.run(1.0)
    assert cluster.phase is Phase.WAITING
    cluster.run_until(lambda: stable(cluster))


def test_a_notice_below_the_minimum_is_followed_as_soon_as_there_is_room() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, min_np=2)
    notice(cluster, "m1")
    cluster.run(2.0)
    cluster.add_host("h2", 1)
    cluster.run(2.0)
    assert cluster.world == ("m0", "m2")
    assert cluster.state.resets == 0


def test_a_notice_does_not_wait_for_a_change_that_takes_its_time() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1, timeout=300.0)
    notice(cluster, "m1", seconds=5.0)
    cluster.run(2.0)
    assert "m1" not in cluster.world and cluster.state.resets == 0
    assert ticket not in cluster.answers
    cluster.members["m3"].dial()
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert cluster.state.size == 4 and "m3" in cluster.world


def test_nor_does_the_notice_of_a_host() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    cluster.ask(add=1, timeout=300.0)
    host_notice(cluster, "h0", seconds=5.0)
    cluster.run(2.0)
    assert not {"m0", "m1"} & set(cluster.world)
    assert cluster.state.resets == 0


def test_a_change_of_the_job_s_own_accord_that_cannot_be_prepared_is_not_tried_all_the_time() -> (
    None
):
    cluster = started(HOSTS, np=3)
    cluster.mute = {"m0"}
    notice(cluster, "m1")
    for _ in range(50):
        generation = cluster.state.generation
        cluster.client(events.NotReady, "m0", generation, "too many open files")
        cluster.run(0.1)
    assert cluster.state.generation <= 8


def test_a_notice_during_a_switch_follows_right_after_it() -> None:
    cluster = started(HOSTS, np=3)
    ticket = cluster.ask(add=1)
    assert cluster.phase is Phase.SWITCHING
    notice(cluster, "m1")
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert "m1" not in cluster.world and cluster.state.size == 4


def test_an_old_notice_that_nobody_enforced_does_not_hide_a_new_one() -> None:
    cluster = started({"h0": 2, "h1": 1}, np=3, min_np=3)
    notice(cluster, "m1", seconds=1.0)
    cluster.run(5.0)
    assert "m1" in cluster.world
    notice(cluster, "m2", seconds=30.0)
    cluster.add_host("h2", 4)
    cluster.run(3.0)
    assert not {"m1", "m2"} & set(cluster.world)
    assert cluster.state.resets == 0


def test_a_host_that_discovery_no_longer_lists_is_emptied_and_used_again_when_it_is() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.client(events.HostsListed, {"h1": 2})
    cluster.run(2.0)
    assert {m.host for m in cluster.state.members.values()} == {"h1"}
    cluster.client(events.HostsListed, {"h0": 2, "h1": 2})
    ticket = cluster.ask(add=1)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert "h0" in {m.host for m in cluster.state.members.values()}


def test_discovery_does_not_take_a_host_s_own_notice_back() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    host_notice(cluster, "h0")
    cluster.client(events.HostsListed, {"h0": 2, "h1": 2})
    cluster.run(2.0)
    assert {m.host for m in cluster.state.members.values()} == {"h1"}


def test_discovery_can_give_a_host_more_slots() -> None:
    cluster = started({"h0": 2}, np=2)
    cluster.client(events.HostsListed, {"h0": 3})
    ticket = cluster.ask(add=1)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]


def test_a_member_with_a_notice_before_training_goes_at_once() -> None:
    cluster = FakeCluster(np=2)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    notice(cluster, "m0")
    assert "m0" not in cluster.running


def test_a_step_that_turns_out_to_outlast_the_notice_is_given_up_in_time() -> None:
    cluster = started(HOSTS, np=3)
    notice(cluster, "m1", seconds=10.0)
    assert cluster.phase is Phase.SWITCHING
    cluster.members["m0"].health = Health.STUCK  # in the forward pass, say; the others wait for it
    first = cluster.heard("m1", Switch)[-1].step
    cluster.run(7.5)
    assert cluster.members["m1"].left_in is None
    cluster.run(1.0)
    assert cluster.heard("m1", Switch)[-1].step == cluster.members["m1"].step < first
    assert cluster.members["m1"].left_in is not None
    assert len(cluster.heard("m1", Switch)) == 2
    cluster.kill("m1")  # its notice is over
    cluster.members["m0"].health = Health.RUNNING
    cluster.run(1.0)
    assert untouched(cluster, "m0") and cluster.state.resets == 0
    assert "m1" not in cluster.world and {"m0", "m2"} <= set(cluster.world)


def test_a_leaver_that_does_not_come_to_a_boundary_in_time_holds_up_nobody() -> None:
    cluster = started(HOSTS, np=3)
    notice(cluster, "m1", seconds=10.0)
    cluster.members["m1"].health = Health.STUCK  # in the forward pass of a long step
    cluster.run(9.0)
    assert set(cluster.world) >= {"m0", "m2"} and "m1" not in cluster.world
    cluster.kill("m1")
    cluster.run(1.0)
    assert untouched(cluster, "m0") and cluster.state.resets == 0


def test_the_only_member_s_notice_waits_for_hosts_that_a_restarted_coordinator_expects() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=1)
    cluster.restart(back=False)
    _, commands = handle(cluster.state, events.Noticed(cluster.now, "m0", 30.0))
    told = [c.message for c in commands if isinstance(c, do.Tell)]
    assert not any(isinstance(message, Dismiss) for message in told), "h1 has free slots"


def test_a_host_with_as_many_slots_as_members_keeps_them_whichever_slots_they_are_in() -> None:
    cluster = started({"h0": 2, "h1": 1}, np=3)
    cluster.ask(names=("m0",))
    cluster.run_until(lambda: cluster.world == ("m1", "m2"))
    cluster.client(events.HostsListed, {"h0": 1, "h1": 1})
    cluster.run(3.0)
    assert cluster.world == ("m1", "m2"), "m1 is in the second slot of h0"
    cluster.ask(to=3, timeout=1.0)
    cluster.run(3.0)
    assert len(cluster.running) == 2, "h0 has no room for another"
