"""How a job comes up: at the wanted size, or at the minimum after the start timeout."""

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Mode, Phase
from midflight.protocol.messages import Form
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, stable


def test_a_job_starts_at_the_wanted_size() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=3).run(1.0)
    assert cluster.phase is Phase.STABLE
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.promises.done > 0


def test_members_are_placed_on_the_hosts_in_the_order_in_which_they_came() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=3).run(1.0)
    assert cluster.state.world is not None
    places = [(m.host, m.slot) for m in cluster.state.world.members]
    assert places == [("h0", 0), ("h0", 1), ("h1", 0)]


def test_nothing_is_started_before_there_is_room_for_all() -> None:
    cluster = FakeCluster({"h0": 2}, np=3, start_timeout=10.0).run(9.0)
    assert cluster.running == []
    cluster.add_host("h1", 1)
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1", "m2")


def test_after_the_start_timeout_the_minimum_is_enough_and_the_rest_joins_later() -> None:
    cluster = FakeCluster({"h0": 2}, np=3, min_np=2, start_timeout=10.0).run(11.0)
    assert cluster.world == ("m0", "m1")
    cluster.add_host("h1", 4)
    cluster.run_until(lambda: stable(cluster))
    assert cluster.world == ("m0", "m1", "m2")


def test_an_eager_job_starts_with_the_minimum_once_every_listed_host_is_there() -> None:
    cluster = FakeCluster({"h0": 1}, np=3, min_np=1, start_timeout=100.0, eager=True)
    cluster.client(events.HostsListed, {"h0": 1, "h1": 1})
    cluster.run(5.0)
    assert cluster.running == []  # h1 is listed, and may come any moment
    cluster.add_host("h1", 1)
    cluster.run(2.0)
    assert cluster.world == ("m0", "m1")
    cluster.add_host("h2", 1)
    cluster.run_until(lambda: stable(cluster))
    assert cluster.world == ("m0", "m1", "m2")


def test_an_eager_job_waits_for_its_minimum_all_the_same() -> None:
    cluster = FakeCluster({"h0": 1}, np=3, min_np=2, start_timeout=20.0, eager=True)
    cluster.client(events.HostsListed, {"h0": 1})
    cluster.run(15.0)
    assert cluster.running == []


def test_without_room_for_the_minimum_the_job_fails_after_the_elastic_timeout_in_one_line() -> None:
    cluster = FakeCluster({"h0": 1}, np=3, min_np=2, elastic_timeout=40.0).run(41.0)
    assert cluster.ended == (1, cluster.lines[-1])
    assert "slots for 2 members wanted, 1 found within 40 s" in cluster.lines[-1]
    assert "h0 0/1 slots used" in cluster.lines[-1]


def test_one_that_dies_before_training_is_replaced_elsewhere() -> None:
    cluster = FakeCluster({"h0": 1, "h1": 3}, np=3, min_np=3, cooldown_min=30.0)
    cluster.fate["m0"] = Fate.DIES
    cluster.run_until(lambda: stable(cluster))
    assert cluster.state.world is not None
    assert {m.host for m in cluster.state.world.members} == {"h1"}


def test_one_that_is_late_does_not_hold_up_the_others_beyond_the_start_timeout() -> None:
    cluster = FakeCluster(np=3, min_np=2, start_timeout=10.0)
    cluster.fate["m1"] = Fate.HANGS
    cluster.run(11.0)
    assert cluster.world == ("m0", "m2")
    cluster.members["m1"].dial()
    cluster.run_until(lambda: stable(cluster))
    assert cluster.world == ("m0", "m2", "m1")


def test_a_member_that_never_comes_up_ends_the_wait_for_the_minimum() -> None:
    cluster = FakeCluster(np=3, min_np=3, start_timeout=10.0, elastic_timeout=60.0)
    cluster.fate["m1"] = Fate.HANGS
    cluster.run(61.0)
    assert cluster.ended is not None
    assert "3 members needed to start, 2 came up within 60 s" in cluster.ended[1]


def test_a_command_that_does_not_exist_fails_the_job_at_once() -> None:
    cluster = FakeCluster(np=2)
    cluster.fate["m0"] = cluster.fate["m1"] = Fate.CANNOT_START
    cluster.run(1.0)
    assert cluster.ended == (1, "no such command: pyhton")


def test_a_host_that_leaves_before_it_has_started_anything_does_not_fail_the_job() -> None:
    cluster = FakeCluster({"h0": 1, "h1": 2}, np=2, min_np=2)
    cluster.store_works = False  # the orders are not given yet
    cluster.settle()
    cluster.client(events.HostNoticed, "h0", 30.0)
    cluster.client(events.NotStarted, "m0", "host h0 is leaving")
    cluster.store_works = True
    cluster.run_until(lambda: stable(cluster))
    assert all(m.host == "h1" for m in cluster.state.members.values())


def test_an_agent_that_dies_before_training_does_not_fail_the_job() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=2, min_np=2)
    cluster.fate["m0"] = Fate.HANGS
    cluster.settle()
    cluster.kill_agent("h0")
    cluster.run_until(lambda: stable(cluster))
    assert all(m.host == "h1" for m in cluster.state.members.values())


def test_nor_does_one_that_takes_all_members_with_it() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=2, min_np=2)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    cluster.pick = lambda sources: sources[-1]  # the member's end is heard of before its agent's
    cluster.kill_agent("h0")
    cluster.run_until(lambda: stable(cluster))
    assert all(m.host == "h1" for m in cluster.state.members.values())


def test_a_state_whose_word_is_on_its_way_is_waited_for() -> None:
    cluster = FakeCluster({"h0": 2, "h1": 2}, np=2)
    while cluster.state.forming is None:
        cluster.deliver_one()
    cluster.mute = {"m1"}
    cluster.run(0.5)
    assert cluster.promises.done > 0 and not cluster.state.members["m1"].holds_state
    cluster.kill("m0")
    cluster.run(0.2)
    assert cluster.ended is None
    cluster.mute.clear()
    cluster.run_until(lambda: stable(cluster))
    assert "m1" in cluster.world


def test_a_death_while_the_first_world_is_formed_leaves_the_others_in_the_next() -> None:
    cluster = FakeCluster(np=3, min_np=2)
    cluster.mute = {"m0", "m1", "m2"}
    cluster.settle()
    cluster.mute.clear()
    cluster.members["m1"].health = Health.STUCK
    cluster.settle()
    assert cluster.state.forming is not None
    cluster.kill("m1")
    cluster.run(1.0)
    assert set(cluster.world) >= {"m0", "m2"}
    assert [m.world.names for m in cluster.heard("m0", Form)][-1][:2] == ("m0", "m2")


def test_too_few_after_a_death_in_the_first_world_wait_for_another_and_are_not_forgotten() -> None:
    cluster = FakeCluster({"h0": 2}, np=2, min_np=2, cooldown_min=3.0)
    cluster.settle()
    assert cluster.state.forming is None and cluster.phase is Phase.STABLE
    cluster = FakeCluster({"h0": 2}, np=2, min_np=2, cooldown_min=3.0)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    cluster.members["m1"].dial()
    cluster.members["m1"].health = Health.STUCK
    cluster.settle()
    cluster.kill("m1")
    cluster.run(1.0)
    assert cluster.phase is Phase.WAITING
    cluster.run_until(lambda: stable(cluster))
    assert cluster.world == ("m0", "m2")


def test_a_script_that_calls_midflight_late_is_still_elastic() -> None:
    cluster = FakeCluster(np=3, start_timeout=5.0)
    for name in ("m0", "m1", "m2"):
        cluster.fate[name] = Fate.HANGS
    cluster.run(6.0)
    assert cluster.state.mode is Mode.RESTART
    for name in ("m0", "m1", "m2"):
        cluster.members[name].dial()
    cluster.run(1.0)
    assert cluster.state.mode is Mode.ELASTIC
    assert cluster.world == ("m0", "m1", "m2")
    assert cluster.promises.done > 0


def test_a_model_that_differs_fails_the_job_with_that_reason() -> None:
    cluster = FakeCluster(np=2)
    cluster.fate["m1"] = Fate.HANGS
    cluster.settle()
    error = "Traceback ...\nStateError: this member's model is not that of rank 0: layer.weight"
    cluster.members["m0"].tell(events.Failed, error, "StateError")
    cluster.settle()
    assert cluster.ended is not None
    assert "layer.weight" in cluster.ended[1]


def test_ranks_follow_the_hosts_as_they_were_written_whoever_came_first() -> None:
    cluster = FakeCluster({"late": 1, "h1": 1, "h0": 2}, np=4, order=("h0", "h1")).run(1.0)
    assert cluster.state.world is not None
    places = [(m.host, m.slot) for m in cluster.state.world.members]
    assert places == [("h0", 0), ("h0", 1), ("h1", 0), ("late", 0)]
