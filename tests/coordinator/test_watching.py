"""Finding what nobody reports: silence, stopped processes, lost hosts, hangs."""

from dataclasses import replace

from midflight.coordinator.core import events
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import Ended, Phase
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, stable, started

HOSTS = {"h0": 2, "h1": 2, "h2": 2}


def test_a_stopped_member_is_found_by_its_silence_taken_out_and_killed() -> None:
    cluster = started(HOSTS, np=3)
    cluster.members["m1"].health = Health.STOPPED
    cluster.run(1.3)
    assert "m1" not in cluster.world
    assert "m1" not in cluster.running
    assert cluster.said("lost m1: its process is stopped")
    cluster.run(2.0)
    assert stable(cluster)


def test_a_member_that_is_merely_busy_is_waited_for() -> None:
    cluster = started(HOSTS, np=3)
    cluster.members["m1"].health = Health.BUSY
    cluster.run(60.0)
    assert cluster.world == ("m0", "m1", "m2")
    cluster.members["m1"].health = Health.RUNNING
    done = cluster.promises.done
    cluster.run(1.0)
    assert cluster.promises.done > done
    assert cluster.state.resets == 0


def test_a_stopped_joiner_fails_its_request_at_once() -> None:
    cluster = started(HOSTS, np=2)
    cluster.members["m0"].health = Health.STUCK
    ticket = cluster.ask(add=1, timeout=600.0)
    cluster.members["m2"].health = Health.STOPPED
    cluster.run(1.5)
    ok, detail = cluster.answers[ticket]
    assert not ok and "its process is stopped" in detail
    assert cluster.world == ("m0", "m1")
    assert "m2" not in cluster.running


def test_a_stopped_member_is_found_while_the_next_world_is_formed() -> None:
    cluster = started(HOSTS, np=3)
    cluster.members["m1"].health = Health.STOPPED
    cluster.kill("m2")
    cluster.run(3.0)
    assert stable(cluster)
    assert "m1" not in cluster.world


def test_a_host_that_says_nothing_for_a_whole_lease_is_given_up_with_its_members() -> None:
    cluster = started(HOSTS, np=4)
    cluster.cut("h1")
    cluster.run(4.5)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    cluster.run(1.5)
    assert cluster.said("no message from h1 for 5 s")
    assert cluster.state.resets == 1
    cluster.run(2.0)
    assert stable(cluster)
    assert {m.host for m in cluster.state.members.values()} == {"h0", "h2"}


def test_those_who_come_back_after_the_lease_are_sent_away_and_stopped() -> None:
    cluster = started(HOSTS, np=4)
    cluster.cut("h1")
    cluster.run(8.0)
    cluster.heal("h1")
    cluster.run(0.5)
    assert cluster.members["m2"].health is Health.GONE
    assert cluster.members["m3"].health is Health.GONE
    assert not {"m2", "m3"} & set(cluster.world)


def test_members_that_are_heard_are_not_given_up_because_their_agent_is_silent() -> None:
    cluster = started(HOSTS, np=4)
    cluster.agents["h1"].connected = False  # it hangs; its members do not
    cluster.run(10.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    ticket = cluster.ask(add=2)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert {cluster.members[name].host for name in ("m4", "m5")} == {"h2"}


def test_an_answer_about_a_member_that_was_heard_meanwhile_is_out_of_date() -> None:
    cluster = started(HOSTS, np=3)
    cluster.client(events.Probed, "m1", "stopped")
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1", "m2")


def test_a_host_that_came_back_is_used_again() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=4, cooldown_min=1.0)
    cluster.cut("h1")
    cluster.run(8.0)
    assert cluster.world == ("m0", "m1")
    cluster.heal("h1")
    cluster.run(2.0)
    assert stable(cluster)


def test_a_collective_that_breaks_because_of_a_cut_waits_for_the_lease_to_tell_who_is_gone() -> (
    None
):
    cluster = started(HOSTS, np=4)
    cluster.cut("h1")
    cluster.run(0.8)
    for name in ("m0", "m1"):
        cluster.members[name].break_off()
    cluster.run(3.0)
    assert cluster.phase is Phase.STABLE, "no world is formed with those of whom nothing is known"
    cluster.run(4.0)
    assert stable(cluster)
    assert cluster.state.resets == 1


def test_a_member_that_keeps_all_others_waiting_for_too_long_is_taken_out() -> None:
    cluster = started(HOSTS, np=3, hang_timeout=10.0)
    cluster.members["m1"].health = Health.STUCK
    cluster.run(9.0)
    assert "m1" in cluster.world
    cluster.run(3.0)
    assert "m1" not in cluster.world and "m1" not in cluster.running
    assert cluster.said("no step for 10 s, while the others wait for it")


def test_nobody_is_taken_out_when_all_are_slow() -> None:
    cluster = started(HOSTS, np=3, hang_timeout=10.0)
    for name in cluster.world:
        cluster.members[name].health = Health.STUCK
    cluster.run(30.0)
    assert cluster.world == ("m0", "m1", "m2")


def test_members_that_all_wait_for_each_other_form_the_world_anew() -> None:
    cluster = started(HOSTS, np=3, hang_timeout=10.0)
    for name in cluster.world:
        cluster.members[name].broken = True  # and none of them has noticed
    cluster.run(12.0)
    assert cluster.said("went on with 3 members")
    assert cluster.state.world is not None and cluster.state.world.generation == 2


def test_a_switch_that_stands_still_is_given_up() -> None:
    cluster = started(HOSTS, np=2, hang_timeout=10.0)
    ticket = cluster.ask(add=1)
    cluster.members["m2"].health = Health.STUCK
    cluster.run(9.0)
    assert cluster.phase is Phase.SWITCHING
    cluster.members["m2"].health = Health.RUNNING
    cluster.members["m2"].switch = None  # it never heard of it
    cluster.run(4.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0", "m1", "m2")


def test_a_switch_that_nobody_comes_to_is_given_up_too() -> None:
    cluster = started(HOSTS, np=2, hang_timeout=10.0)
    ticket = cluster.ask(add=1)
    assert cluster.phase is Phase.SWITCHING
    for name in ("m0", "m1"):
        cluster.members[name].break_off()  # and says nothing, for a switch explains it
        cluster.members[name].health = Health.STUCK
    cluster.run(9.0)
    for name in ("m0", "m1"):
        cluster.members[name].health = Health.RUNNING
        cluster.members[name].finished = True  # as far as beats tell: outside any collective
    cluster.run(2.0)
    for name in ("m0", "m1"):
        cluster.members[name].finished = False
    cluster.run(2.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0", "m1", "m2")


def test_members_that_left_and_do_not_end_are_ended_after_the_grace() -> None:
    cluster = started(HOSTS, np=3, grace=10.0)
    cluster.members["m2"].stays = True
    cluster.ask(remove=1)
    cluster.run(9.0)
    assert "m2" in cluster.running
    cluster.run(3.0)
    assert "m2" not in cluster.running
    assert cluster.state.hosts["h1"].failures == 0
    assert cluster.world == ("m0", "m1")


def test_a_leaver_may_take_longer_than_a_lease_to_end() -> None:
    cluster = started(HOSTS, np=3, grace=30.0)
    leaver = cluster.members["m2"]
    leaver.stays = True
    cluster.ask(remove=1)
    cluster.run(1.0)
    leaver.connected = False
    leaver.tell(events.Disconnected)
    cluster.run(10.0)
    assert "m2" in cluster.running
    assert "m2" in cluster.state.members, "its slot is not given to another"


def test_a_coordinator_that_did_not_listen_for_a_while_blames_nobody() -> None:
    cluster = started(HOSTS, np=3)
    cluster.now += 60.0
    cluster.handle(events.Ticked(cluster.now, {}, frozenset()))
    cluster.run(2.0)
    assert cluster.state.resets == 0
    assert cluster.world == ("m0", "m1", "m2")


def test_a_new_agent_in_the_place_of_a_dead_one_knows_nothing_of_its_members() -> None:
    cluster = started(HOSTS, np=4)
    old = cluster.agents["h1"]
    for member in tuple(old.members.values()):
        member.health = Health.GONE
        cluster._close(member)
    cluster.add_host("h1", 2)  # its connection takes the place of the old one, unseen
    cluster.run(2.0)
    assert stable(cluster)
    assert not {"m2", "m3"} & set(cluster.world)
    assert cluster.state.resets == 1


def test_a_lost_start_order_is_given_again_when_the_agent_is_back() -> None:
    cluster = started(HOSTS, np=2)
    agent = cluster.agents["h1"]
    agent.connected = False  # the line is broken, and nobody has noticed yet
    ticket = cluster.ask(add=1)
    assert "m2" not in cluster.members
    agent.dial()
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0", "m1", "m2")


def test_two_hosts_lost_in_one_tick_are_both_mended() -> None:
    cluster = started(HOSTS, np=5)
    cluster.cut("h1")
    cluster.cut("h2")
    cluster.run(8.0)
    assert cluster.phase is Phase.STABLE
    assert cluster.world == ("m0", "m1")
    assert cluster.state.resets == 1


def test_a_member_that_never_comes_out_of_the_last_worlds_collective_is_taken_out() -> None:
    cluster = started(HOSTS, np=4)
    cluster.members["m1"].health = Health.STUCK
    cluster.kill("m2")
    cluster.run(0.3)
    state = cluster.state
    assert state.forming is not None
    later = cluster.now + 6.0
    members = {name: replace(m, heard_at=later, waiting=False) for name, m in state.members.items()}
    members["m1"] = replace(members["m1"], waiting=True, moved_at=cluster.now)
    state = replace(state, members=members, ticked_at=later - 0.1)
    state, _ = handle(state, events.Ticked(later, {}, frozenset(HOSTS)))
    assert "m1" not in state.members
    assert state.forming is not None and "m1" not in state.forming.world


def test_how_a_vanished_member_ended_is_told_as_soon_as_it_is_known() -> None:
    cluster = started()
    cluster.handle(events.Disconnected(cluster.now, "m1"))
    cluster.handle(events.Probed(cluster.now, "m1", "gone"))
    assert cluster.said("lost m1: its process is gone")
    cluster.handle(events.Exited(cluster.now, "m1", -9, ""))
    cluster.handle(events.Exited(cluster.now, "m1", -9, ""))
    assert [line for line in cluster.lines if "m1: killed by SIGKILL" in line] == [
        "m1: killed by SIGKILL"
    ]


def test_what_ended_a_job_is_known_though_it_is_told_after_the_end() -> None:
    cluster = started({"a": 1}, np=1)
    cluster.handle(events.Disconnected(cluster.now, "m0"))
    cluster.handle(events.Probed(cluster.now, "m0", "gone"))
    assert cluster.state.phase is Phase.FAILED
    cluster.handle(events.Exited(cluster.now, "m0", 1, "ValueError: no such layer"))
    assert cluster.state.first_failure == Ended("a", 0, 1, 0, "ValueError: no such layer")


def test_a_member_that_ends_of_another_members_end_is_not_the_first_failure() -> None:
    cluster = started({"a": 2}, np=2, fixed_size=True, by_rank=True)
    cluster.handle(events.Disconnected(cluster.now, "m1"))
    cluster.handle(events.Disconnected(cluster.now + 0.1, "m0"))
    cluster.handle(events.Exited(cluster.now + 0.2, "m0", 1, "another member has gone"))
    assert cluster.said("rank 1 on a failed, and the job is of fixed size")
    cluster.handle(events.Exited(cluster.now + 0.3, "m1", 3, ""))
    assert cluster.state.first_failure == Ended("a", 1, 3, 1)


def test_hosts_that_have_yet_to_find_a_coordinator_that_moved_are_given_longer() -> None:
    cluster = started(HOSTS, np=4, come_back=20.0)
    for host in HOSTS:
        cluster.cut(host)
    cluster.restart()
    cluster.run(12.0)
    assert cluster.world == ("m0", "m1", "m2", "m3")
    for host in HOSTS:
        cluster.heal(host)
    cluster.run(3.0)
    assert stable(cluster)
    assert cluster.world == ("m0", "m1", "m2", "m3")


def told(cluster: FakeCluster, name: str, step: int, heard_at: float) -> None:
    """A beat, and the tick in which it is looked at."""
    beat = events.Beating(step, step, waiting=False, heard_at=heard_at)
    cluster.now = max(cluster.now, heard_at)
    cluster.handle(events.Ticked(cluster.now, {name: beat}, frozenset(HOSTS)))


def test_a_step_that_a_newcomer_was_handed_is_not_taken_for_its_pace() -> None:
    cluster = started(HOSTS, np=2)
    cluster.fate["m2"] = Fate.HANGS
    cluster.ask(add=1)
    cluster.run_until(lambda: "m2" in cluster.state.members)
    told(cluster, "m2", step=1_000_000, heard_at=cluster.now + 0.1)
    assert cluster.state.members["m2"].rate == 0.0


def test_a_beat_from_before_a_member_settled_does_not_set_it_back() -> None:
    cluster = started(HOSTS, np=2)
    before = cluster.now
    generation = cluster.state.generation
    cluster.handle(events.Settled(before + 0.02, "m1", generation, 1_000_000))
    told(cluster, "m1", step=0, heard_at=before + 0.01)
    assert cluster.state.members["m1"].step == 1_000_000
    told(cluster, "m1", step=1_000_001, heard_at=before + 0.12)
    assert cluster.state.members["m1"].rate < 100


def test_the_pace_of_long_steps_is_known_between_them_too() -> None:
    cluster = started(HOSTS, np=2)
    began, step = cluster.now, cluster.members["m1"].step + 1
    paces = []
    for beat in range(1, 150):
        told(cluster, "m1", step + beat // 50, began + beat * 0.2)  # 10 s a step
        paces.append(cluster.state.members["m1"].rate)
    assert all(0.05 < pace < 0.2 for pace in paces[-30:]), paces[-30:]
