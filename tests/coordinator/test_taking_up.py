"""The coordinator is killed and started again, in every phase: the job goes on from the store."""

from collections.abc import Callable

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import ChangeStage, Mode, Phase, restored
from midflight.coordinator.saved_state import FORMAT, Saved
from midflight.protocol import codec
from midflight.protocol.messages import Dismiss, Form, Over, Prepare, Switch
from tests.coordinator.fake_members import FakeMember, Fate, Health
from tests.coordinator.scenario import FakeCluster, stable, started

HOSTS = {"h0": 3, "h1": 3, "h2": 3}


def goes_on(cluster: FakeCluster) -> None:
    done = cluster.promises.done
    cluster.run_until(lambda: stable(cluster)).run(2.0)
    assert cluster.ended is None
    assert cluster.promises.done > done


def test_a_state_survives_the_store_in_every_detail() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    cluster.ask(add=1)
    cluster.ask(to=5)
    saved = Saved(FORMAT, 1.0, 2.0, cluster.state)
    assert codec.decode(Saved, codec.loads(codec.dumps(saved))) == saved


def test_times_are_moved_to_the_new_clock() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    cluster.ask(add=1, timeout=50.0)
    cluster.agents["h1"].tell(events.HostNoticed, "h1", 30.0)
    cluster.settle()
    state = restored(cluster.state, now=7.0, saved_at=cluster.now)
    assert state.change is not None
    assert state.change.request.deadline == pytest.approx(57.0)
    assert state.hosts["h1"].notice_until == pytest.approx(37.0)
    assert not any(host.connected for host in state.hosts.values())
    assert not any(member.connected for member in state.members.values())


def test_members_in_training_notice_nothing() -> None:
    cluster = started(HOSTS, np=3)
    heard = len(cluster.members["m0"].heard)
    cluster.restart()
    goes_on(cluster)
    assert len(cluster.members["m0"].heard) == heard
    assert cluster.state.generation == 1 and cluster.state.resets == 0


def test_training_goes_on_while_it_is_away_and_whoever_is_slow_to_come_back_is_waited_for() -> None:
    cluster = started(HOSTS, np=3)
    done = cluster.promises.done
    cluster.restart(back=False)
    cluster.run(3.0)
    assert cluster.promises.done > done
    cluster.come_back()
    goes_on(cluster)
    assert cluster.state.resets == 0


def test_nobody_who_comes_back_leaves_the_job_to_fail_in_the_end() -> None:
    cluster = started(HOSTS, np=3, elastic_timeout=30.0)
    cluster.restart(back=False)
    cluster.run(29.0)
    assert cluster.ended is None
    cluster.run(8.0)
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_a_death_while_it_was_away_is_mended_with_all_who_are_left() -> None:
    cluster = started(HOSTS, np=3)
    cluster.kill("m1")
    cluster.restart()
    goes_on(cluster)
    assert set(cluster.world) >= {"m0", "m2"} and "m1" not in cluster.world
    assert cluster.state.resets == 1


def test_an_agent_s_death_while_it_was_away_is_mended_too() -> None:
    cluster = started(HOSTS, np=5)
    cluster.kill_agent("h0")
    cluster.restart()
    cluster.run(8.0)
    goes_on(cluster)
    assert set(cluster.world) >= {"m3", "m4"}


def test_members_are_not_taken_for_dead_because_their_agent_comes_back_before_them() -> None:
    cluster = started(HOSTS, np=3)
    cluster.kill("m1")
    cluster.restart(back=False)
    for agent in cluster.agents.values():
        agent.dial()
    cluster.settle()
    assert cluster.phase is Phase.RECOVERING and cluster.ended is None
    for name in ("m0", "m2"):
        cluster.members[name].dial()
    goes_on(cluster)
    assert set(cluster.world) >= {"m0", "m2"}


def test_while_the_first_members_start() -> None:
    cluster = FakeCluster(HOSTS, np=3)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    cluster.restart()
    cluster.settle()
    assert cluster.running == ["m0", "m1", "m2"], "nobody is started twice"
    cluster.members["m1"].dial()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")


def test_members_on_their_way_back_are_not_replaced_before_the_first_world() -> None:
    cluster = FakeCluster(HOSTS, np=2, min_np=2)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    cluster.kill("m1")
    cluster.restart(back=False)
    for agent in cluster.agents.values():
        agent.dial()
    cluster.run(1.0)
    assert cluster.running == ["m0"]
    cluster.come_back()
    goes_on(cluster)
    assert cluster.world == ("m0", "m2")


def test_before_the_first_members_were_started_they_are_started_by_the_next() -> None:
    cluster = FakeCluster(HOSTS, np=3)
    cluster.store_works = False
    cluster.settle()
    assert cluster.members == {}, "nothing is started before its name is in the store"
    cluster.restart()
    cluster.store_works = True
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")


def test_an_order_to_start_that_was_saved_and_never_given_is_given() -> None:
    cluster = started(HOSTS, np=2)
    agent = cluster.agents["h0"]
    agent.connected = False
    cluster.ask(add=1)
    assert "m2" in cluster.state.members and "m2" not in cluster.members
    cluster.restart()
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1", "m2")


def test_while_the_first_world_is_formed() -> None:
    cluster = FakeCluster(HOSTS, np=3)
    cluster.fate["m2"] = Fate.HANGS
    cluster.settle()
    cluster.members["m2"].health = Health.STUCK
    cluster.members["m2"].dial()
    cluster.settle()
    assert cluster.state.forming is not None
    cluster.members["m2"].health = Health.RUNNING
    cluster.restart()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.state.resets == 0


def test_a_world_that_was_formed_while_nobody_listened_is_taken_as_it_is() -> None:
    cluster = started(HOSTS, np=4)
    cluster.mute = {"m0", "m2", "m3"}
    cluster.kill("m1")
    cluster.settle()
    assert cluster.phase is Phase.RECOVERING
    assert cluster.members["m0"].generation == 2
    cluster.mute.clear()
    cluster.restart()
    cluster.settle()
    assert set(cluster.world) >= {"m0", "m2", "m3"}
    assert not [m for m in cluster.heard("m0", Over) if m.generation == 2]
    goes_on(cluster)


def test_a_world_that_was_saved_and_never_announced_is_replaced() -> None:
    cluster = started(HOSTS, np=3)
    cluster.mute = {"m0", "m2"}
    for name in ("m0", "m2"):
        cluster.members[name].connected = False  # what they are told now does not arrive
    cluster.kill("m1")
    cluster.settle()
    assert cluster.state.forming is not None
    cluster.mute.clear()
    cluster.restart()
    goes_on(cluster)
    assert cluster.members["m0"].generation >= 3


def test_while_joiners_start() -> None:
    cluster = started(HOSTS, np=2)
    cluster.fate["m2"] = Fate.HANGS
    cluster.ask(add=1)
    cluster.restart()
    cluster.run(1.0)
    assert cluster.phase is Phase.PREPARING
    cluster.members["m2"].dial()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")


def test_while_the_coming_world_is_connected_it_is_connected_anew() -> None:
    cluster = started(HOSTS, np=2)
    cluster.mute = {"m1"}
    cluster.ask(add=1)
    assert cluster.state.change is not None
    assert cluster.state.change.stage is ChangeStage.CONNECTING
    cluster.mute.clear()
    cluster.restart()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")
    assert [m.world.generation for m in cluster.heard("m0", Prepare)] == [2, 3]
    assert not cluster.heard("m0", Over), "training was not disturbed"


def test_after_the_step_of_a_switch_was_published() -> None:
    cluster = started(HOSTS, np=2)
    cluster.ask(add=1)
    assert cluster.phase is Phase.SWITCHING
    cluster.restart()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")
    assert not cluster.heard("m0", Over)


def test_after_a_switch_that_nobody_was_told_of() -> None:
    cluster = started(HOSTS, np=2)
    ticket = cluster.ask(add=1)
    assert cluster.phase is Phase.SWITCHING
    for member in cluster.members.values():
        member.switch = None
        member.heard = [m for m in member.heard if not isinstance(m, Switch)]
    cluster.run(1.0)  # they train on in the old world, past the step
    assert cluster.phase is Phase.SWITCHING
    cluster.restart()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1", "m2")
    assert ticket not in cluster.answers


@pytest.mark.parametrize("muted", ["m0", "m2"])
def test_when_some_have_passed_the_switch(muted: str) -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(remove=1)
    cluster.mute = {muted}
    cluster.run(0.5)
    assert cluster.phase is Phase.SWITCHING
    cluster.mute.clear()
    cluster.restart()
    goes_on(cluster)
    assert cluster.world == ("m0", "m1")
    assert cluster.running == ["m0", "m1"]


def test_a_leaver_that_was_let_go_is_not_taken_for_a_loss() -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(remove=1)
    cluster.run(0.4)
    assert cluster.world == ("m0", "m1")
    cluster.restart()
    goes_on(cluster)
    assert cluster.state.resets == 0
    assert set(cluster.state.members) == {"m0", "m1"}


def test_nobody_is_let_go_before_the_store_knows() -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(remove=1)
    cluster.store_works = False
    cluster.run(0.5)
    assert cluster.state.size == 2
    assert not cluster.heard("m2", Dismiss)
    cluster.restart()
    cluster.store_works = True
    goes_on(cluster)
    assert cluster.world == ("m0", "m1")


def test_while_survivors_wait_for_others() -> None:
    cluster = started({"h0": 1, "h1": 1}, np=2, min_np=2)
    cluster.kill_agent("h1")
    cluster.run(1.0)
    assert cluster.phase is Phase.WAITING
    cluster.restart()
    cluster.run(6.0)
    assert cluster.phase is Phase.WAITING
    assert cluster.ended is None
    cluster.add_host("h2", 1)
    goes_on(cluster)
    assert cluster.world == ("m0", "m2")


def test_a_broken_collective_is_said_again() -> None:
    cluster = started(HOSTS, np=3)
    for name in cluster.world:
        cluster.members[name].break_off()
    cluster.settle()
    cluster.restart()
    goes_on(cluster)
    assert cluster.state.world is not None and cluster.state.world.generation == 2


def test_members_that_finished_while_it_was_away_say_so_again() -> None:
    cluster = started(HOSTS, np=3)
    cluster.last_step = cluster.promises.done + 5
    cluster.restart(back=False)
    cluster.run(2.0)
    cluster.come_back()
    cluster.run(1.0)
    assert cluster.ended == (0, "")


@pytest.mark.parametrize("store_works", [True, False])
def test_while_members_leave_after_training(store_works: bool) -> None:
    cluster = started(HOSTS, np=3)
    cluster.last_step = cluster.promises.done + 5
    cluster.members["m1"].stays = True
    cluster.store_works = store_works
    cluster.run(1.0)
    assert cluster.phase is Phase.ENDING
    cluster.restart()
    cluster.store_works = True
    cluster.run(1.0)
    assert cluster.phase is Phase.ENDING
    cluster.kill("m1", code=0)
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_exits_while_it_was_away_keep_their_codes() -> None:
    cluster = started(HOSTS, np=3)
    cluster.last_step = cluster.promises.done + 5
    cluster.members["m1"].stays = True
    cluster.run(1.0)
    cluster.kill("m1", code=3)
    cluster.restart()
    cluster.run(1.0)
    assert cluster.ended is not None
    assert "m1 failed after training: exit code 3" in cluster.ended[1]


def plain_script() -> FakeCluster:
    cluster = FakeCluster(HOSTS, np=3, start_timeout=3.0)
    cluster.uses_midflight = False
    return cluster.run_until(lambda: cluster.state.mode is Mode.RESTART)


def test_a_script_without_midflight_goes_on_undisturbed() -> None:
    cluster = plain_script()
    cluster.restart()
    cluster.run(10.0)
    assert len(cluster.starts) == 1
    cluster.kill(*cluster.running, code=0)
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_a_script_without_midflight_that_ended_meanwhile_has_succeeded() -> None:
    cluster = plain_script()
    cluster.kill(*cluster.running, code=0)
    cluster.restart()
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_a_failure_of_such_a_script_is_not_forgotten() -> None:
    cluster = plain_script()
    cluster.kill("m1", code=1)
    cluster.settle()
    cluster.restart()
    cluster.run(3.0)
    assert len(cluster.starts) == 2


def test_an_agent_that_was_replaced_meanwhile_knows_nothing_and_is_asked() -> None:
    cluster = plain_script()
    cluster.kill_agent("h0")
    cluster.add_host("h0", 3)
    cluster.restart()
    cluster.run(3.0)
    assert len(cluster.starts) == 2 and len(cluster.running) == 3


def test_a_restart_of_such_a_script_is_carried_through() -> None:
    cluster = plain_script()
    for agent in cluster.agents.values():
        agent.connected = False  # the orders to stop do not arrive
    cluster.ask(to=2)
    assert cluster.phase is Phase.RESTARTING
    cluster.restart()
    cluster.run(3.0)
    assert len(cluster.running) == 2


def test_nobody_is_stopped_before_the_store_knows_of_the_restart() -> None:
    """Its successor would take the ends of all for a failure, and might have no more to spare."""
    cluster = FakeCluster({"h0": 1}, np=2, min_np=1, max_restarts=0, last_call=1.0)
    cluster.uses_midflight = False
    cluster.run_until(lambda: len(cluster.running) == 1)
    cluster.run(31.0)
    cluster.store_works = False
    cluster.add_host("h1", 1)
    cluster.run(1.0)
    cluster.hang_up("h0")
    cluster.dial_again("h0")
    cluster.run(3.0)
    assert cluster.phase is Phase.RESTARTING and cluster.running == ["m0"]
    cluster.restart()
    cluster.store_works = True
    cluster.run(5.0)
    assert cluster.ended is None and cluster.state.resets == 0
    assert len(cluster.running) == 2


@pytest.mark.parametrize("known_to_agent", [True, False])
def test_what_nobody_knows_is_stopped_or_sent_away(known_to_agent: bool) -> None:
    cluster = started(HOSTS, np=2)
    agent = cluster.agents["h2"]
    stranger = FakeMember("m50", "h2", 4711, cluster._say, cluster._end_process)
    cluster.members["m50"] = stranger
    agent.members["m50"] = stranger
    agent.slot_of["m50"] = 2
    if known_to_agent:
        agent.dial()
    else:
        stranger.dial()
    cluster.settle()
    assert "m50" not in cluster.running
    assert "m50" not in cluster.state.members
    if not known_to_agent:
        assert stranger.heard == [Dismiss("the job continues without this member", failed=True)]


def test_two_restarts_in_a_row_are_no_worse_than_one() -> None:
    cluster = started(HOSTS, np=3)
    cluster.mute = {"m0"}
    cluster.kill("m1")
    cluster.settle()
    cluster.restart()
    cluster.deliver_one()
    cluster.restart()
    cluster.mute.clear()
    cluster.come_back()
    goes_on(cluster)


def test_no_generation_is_announced_twice_for_different_worlds() -> None:
    cluster = started(HOSTS, np=3)
    moments: list[Callable[[], object]] = [
        lambda: cluster.kill("m1"),
        lambda: cluster.ask(add=1),
        lambda: cluster.kill("m0"),
        lambda: cluster.ask(remove=1),
    ]
    for moment in moments:
        cluster.store_works = False
        moment()
        cluster.settle()
        cluster.restart()
        cluster.store_works = True
        cluster.run(2.0)
    goes_on(cluster)
    worlds = [m.world for name in cluster.members for m in cluster.heard(name, Form)]
    assert {w.generation: w for w in worlds} == {w.generation: w for w in reversed(worlds)}
