"""Planned changes: what is asked for happens as a whole or not at all, and is answered once."""

from typing import Any

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import ChangeStage, Phase
from midflight.protocol.messages import Abandon, Dismiss, Form, Over, Prepare, Switch
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, stable, started

HOSTS = {"h0": 3, "h1": 3}


def disturbed(cluster: FakeCluster, name: str) -> list[type]:
    """What a member in training was told, but for what costs it nothing."""
    first, *rest = cluster.members[name].heard
    assert isinstance(first, Form)
    return [type(message) for message in rest]


def test_scaling_out_takes_newcomers_in_at_a_step_boundary() -> None:
    cluster = started(np=2)
    ticket = cluster.ask(to=4)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0", "m1", "m2", "m3")
    assert cluster.state.wanted == 4
    assert disturbed(cluster, "m0") == [Prepare, Switch]


def test_the_answer_says_what_happened() -> None:
    cluster = started(np=2)
    ticket = cluster.ask(add=1)
    cluster.run(1.0)
    ok, detail = cluster.answers[ticket]
    step = cluster.heard("m0", Switch)[0].step
    assert ok
    assert detail == f"resized from 2 to 3 members at step {step} (generation 2)"


def test_scaling_in_lets_the_newest_leave_first() -> None:
    cluster = started(np=3)
    ticket = cluster.ask(remove=2)
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m0",)
    assert [type(m) for m in cluster.members["m2"].heard[-2:]] == [Switch, Dismiss]
    assert cluster.running == ["m0"]


def test_a_named_member_leaves_even_if_it_is_rank_0() -> None:
    cluster = started(np=3)
    ticket = cluster.ask(names=("m0",))
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m1", "m2")
    assert cluster.state.wanted == 2


def test_adding_and_removing_in_one_request_is_one_switch() -> None:
    cluster = started(np=3)
    ticket = cluster.ask(add=2, names=("m0",))
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m1", "m2", "m3", "m4")
    assert len(cluster.heard("m1", Switch)) == 1


def test_all_old_members_are_replaced_rank_0_included() -> None:
    cluster = started(np=3, max_np=3)
    ticket = cluster.ask(add=3, names=("m0", "m1", "m2"))
    cluster.run(2.0)
    assert cluster.answers[ticket][0]
    assert cluster.world == ("m3", "m4", "m5")
    assert cluster.state.wanted == 3
    assert cluster.running == ["m3", "m4", "m5"]


def test_replacing_all_goes_on_when_one_of_the_old_dies_on_the_way() -> None:
    cluster = started({"h0": 3, "h1": 4}, np=3, max_np=3)
    ticket = cluster.ask(add=3, names=("m0", "m1", "m2"))
    cluster.kill("m0")
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0]
    assert set(cluster.world).isdisjoint({"m0", "m1", "m2"})


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"to": 10}, "10 members would be more than --max-np 9"),
        ({"to": 1}, "1 member would be fewer than --min-np 2"),
        ({"add": 7}, "10 members would be more than --max-np 9"),
        ({"remove": 2}, "1 member would be fewer than --min-np 2"),
        ({"names": ("m7",)}, "no member is named 'm7'; there are m0, m1, m2"),
        ({"names": ("m1", "m1")}, "m1 was named twice"),
        ({"add": -1}, "counts must not be negative"),
        ({"to": 3, "add": 1}, "not for both"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(wish: dict[str, Any], words: str) -> None:
    cluster = started(np=3, min_np=2)
    ticket = cluster.ask(**wish)
    ok, detail = cluster.answers[ticket]
    assert not ok
    assert words in detail
    assert cluster.phase is Phase.STABLE


def test_a_size_that_the_job_has_already_is_answered_at_once() -> None:
    cluster = started(np=3)
    ticket = cluster.ask(to=3)
    assert cluster.answers[ticket] == (True, "the job has 3 members already")
    assert disturbed(cluster, "m0") == []


def test_a_request_before_training_began_is_kept_for_then() -> None:
    cluster = FakeCluster(np=2)
    cluster.fate["m0"] = Fate.HANGS
    ticket = cluster.ask(to=3)
    assert ticket not in cluster.answers
    cluster.members["m0"].dial()
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.state.size == 3


def test_a_second_request_waits_for_the_first() -> None:
    cluster = started(np=2)
    first = cluster.ask(add=1)
    second = cluster.ask(add=1)
    cluster.run(2.0)
    assert cluster.answers[first][0] and cluster.answers[second][0]
    assert cluster.state.size == 4


def test_a_queued_request_is_checked_again_when_its_turn_comes() -> None:
    cluster = started(np=2, max_np=3)
    first, second = cluster.ask(add=1), cluster.ask(add=1)
    cluster.run(2.0)
    assert cluster.answers[first][0]
    assert cluster.answers[second] == (False, "4 members would be more than --max-np 3")


def test_a_target_size_supersedes_a_queued_one() -> None:
    cluster = started(np=2)
    slow = cluster.ask(add=1)
    older, newer = cluster.ask(to=4), cluster.ask(to=5)
    cluster.run(2.0)
    assert cluster.answers[slow][0]
    assert cluster.answers[older] == (False, "superseded by a request for 5 members")
    assert cluster.answers[newer][0] and cluster.state.size == 5


def test_a_target_size_supersedes_one_that_is_still_being_prepared() -> None:
    cluster = started({"h0": 4}, np=2)
    first = cluster.ask(to=9, timeout=600.0)
    cluster.run(1.0)
    assert cluster.phase is Phase.PREPARING
    second = cluster.ask(to=3)
    cluster.run(1.0)
    assert cluster.answers[first] == (False, "superseded by a request for 3 members")
    assert cluster.answers[second][0]
    assert cluster.world == ("m0", "m1", "m2"), "a joiner that was there already is used"
    assert cluster.running == ["m0", "m1", "m2"], "and the other is not left over"


def test_a_queued_request_does_not_wait_beyond_its_timeout() -> None:
    cluster = started({"h0": 2}, np=2)
    blocked = cluster.ask(add=1, timeout=20.0)
    queued = cluster.ask(add=1, timeout=5.0)
    cluster.run(6.0)
    assert cluster.answers[queued] == (False, "other changes were under way until the timeout")
    assert blocked not in cluster.answers


def test_a_joiner_that_dies_before_it_is_ready_fails_the_request_and_nobody_notices() -> None:
    cluster = started(np=2)
    cluster.fate["m2"] = Fate.DIES
    before = cluster.promises.done
    ticket = cluster.ask(add=1)
    cluster.run(1.0)
    ok, detail = cluster.answers[ticket]
    assert not ok
    assert "m2 on h0 ended before it was ready: exit code 1: ImportError" in detail
    assert "the job continues with 2 members" in detail
    assert disturbed(cluster, "m0") == []
    assert cluster.promises.done >= before + 9
    assert cluster.state.wanted == 2


def test_a_joiner_that_dies_while_connecting_costs_the_others_an_abandon() -> None:
    cluster = started(np=2)
    cluster.members["m0"].health = Health.STUCK
    ticket = cluster.ask(add=2)
    cluster.kill("m3")
    cluster.settle()
    assert not cluster.answers[ticket][0]
    assert disturbed(cluster, "m1") == [Prepare, Abandon]
    assert cluster.running == ["m0", "m1"], "the other joiner is taken away too"


def test_joiners_that_are_not_ready_in_time_are_taken_back() -> None:
    cluster = started(np=2)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=2, timeout=10.0)
    cluster.run(11.0)
    ok, detail = cluster.answers[ticket]
    assert not ok
    assert "m3 did not become ready in time" in detail
    assert disturbed(cluster, "m0") == []
    assert cluster.running == ["m0", "m1"]


def test_a_request_without_free_slots_waits_for_them_and_says_where_it_looked() -> None:
    cluster = started({"h0": 2}, np=2)
    ticket = cluster.ask(add=1, timeout=10.0)
    cluster.run(5.0)
    assert ticket not in cluster.answers
    cluster.run(6.0)
    ok, detail = cluster.answers[ticket]
    assert not ok
    assert "no free slot for 1 of the new members (h0 2/2 slots used)" in detail
    second = cluster.ask(add=1, timeout=10.0)
    cluster.add_host("h1", 1)
    cluster.run(1.0)
    assert cluster.answers[second][0]


def test_a_word_that_was_lost_with_a_connection_is_asked_for_again() -> None:
    cluster = started(np=2)
    cluster.mute.add("m1")
    ticket = cluster.ask(add=1)
    cluster._words["member m1"].clear()  # it was ready, and its line broke
    cluster.mute.clear()
    cluster.members["m1"].connected = False
    cluster.members["m1"].tell(events.Disconnected)
    cluster.members["m1"].dial()
    cluster.run(1.0)
    assert cluster.answers[ticket][0]


def test_members_that_cannot_be_connected_in_time_leave_the_old_world_as_it_was() -> None:
    cluster = started(np=2)
    cluster.mute.add("m1")
    ticket = cluster.ask(add=1, timeout=0.5)
    cluster.run(1.0)
    assert "the members could not be connected in time" in cluster.answers[ticket][1]
    assert cluster.world == ("m0", "m1")


def test_a_removal_does_not_wait_for_newcomers() -> None:
    cluster = started({"h0": 2, "h1": 1}, np=3)
    cluster.kill_agent("h1")
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1") and cluster.state.wanted == 3
    ticket = cluster.ask(names=("m1",))
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert cluster.state.wanted == 2
    cluster.run_until(lambda: stable(cluster))
    assert cluster.world == ("m0", "m3"), "its slot is free for another"


def test_the_job_grows_back_after_a_failure_when_there_is_room() -> None:
    cluster = started({"h0": 2, "h1": 2, "h2": 1}, np=3)
    cluster.kill("m2")
    cluster.run(1.0)
    assert cluster.world == ("m0", "m1", "m3")
    assert cluster.members["m3"].host == "h2", "the host that failed is avoided for a while"


def test_a_request_comes_before_the_job_s_own_growth() -> None:
    cluster = started({"h0": 2, "h1": 2}, np=2)
    cluster.fate["m2"] = Fate.HANGS
    cluster.kill("m1")
    cluster.run(1.0)
    assert cluster.state.change is not None and cluster.state.change.request.origin == "growth"
    ticket = cluster.ask(to=1)
    cluster.run(1.0)
    assert cluster.answers[ticket] == (True, "the job has 1 member already")
    assert cluster.running == ["m0"], "what was started for the growth is not left over"


def test_a_finished_growth_is_no_new_wish() -> None:
    cluster = started({"h0": 2}, np=2)
    cluster.kill("m1")
    cluster.run(1.0).run_until(lambda: stable(cluster))
    generation = cluster.state.generation
    cluster.run(20.0)
    assert cluster.state.generation == generation


def test_a_failing_growth_is_tried_again_but_not_all_the_time() -> None:
    cluster = started({"h0": 1, "h1": 3}, np=3, cooldown_min=2.0, cooldown_max=4.0)
    for number in range(3, 12):
        cluster.fate[f"m{number}"] = Fate.DIES
    cluster.kill("m2")
    cluster.run(20.0)
    assert cluster.world == ("m0", "m1")
    assert 4 <= cluster.state.serial <= 10
    cluster.fate.clear()
    cluster.run_until(lambda: stable(cluster))


def test_the_switch_lies_beyond_what_anybody_has_done_or_asked_data_for() -> None:
    cluster = started(np=2)
    cluster.run(5.0)
    ticket = cluster.ask(add=1)
    assert cluster.heard("m0", Switch)[0].step > cluster.members["m0"].step
    cluster.run(1.0)
    assert cluster.answers[ticket][0]
    assert not cluster.heard("m0", Over)


def test_a_newcomer_that_is_not_part_of_a_switch_is_not_told_of_it() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1)
    cluster.members["m2"].tell(events.Noticed, 30.0)
    cluster.settle()
    assert cluster.phase is Phase.SWITCHING, "m2 leaves first"
    cluster.members["m3"].dial()
    cluster.settle()
    assert not cluster.heard("m3", Switch)
    cluster.run(2.0)
    assert cluster.answers[ticket][0]
    assert "m3" in cluster.world and "m2" not in cluster.world


def test_newcomers_that_are_not_needed_any_more_do_not_stay() -> None:
    cluster = started({"h0": 3}, np=2)
    ticket = cluster.ask(add=2, timeout=5.0)
    cluster.run(1.0)
    assert cluster.state.change is not None
    assert cluster.state.change.stage is ChangeStage.STARTING
    assert "m2" in cluster.running
    cluster.run(6.0)
    assert not cluster.answers[ticket][0]
    assert cluster.running == ["m0", "m1"]


def test_a_request_that_is_asked_for_again_is_carried_out_once_and_answered_again() -> None:
    cluster = started(HOSTS, np=2)
    first = cluster.ask(add=1, id="mine")
    second = cluster.ask(add=1, id="mine")  # the client has lost its line meanwhile
    cluster.run(3.0)
    assert cluster.state.size == 3
    assert first not in cluster.answers and cluster.answers[second][0]
    third = cluster.ask(add=1, id="mine")
    assert cluster.answers[third] == cluster.answers[second]
    assert cluster.run(3.0).state.size == 3
    cluster.promises.forgotten.add(first)


def test_the_answer_to_a_request_outlives_the_coordinator() -> None:
    cluster = started(HOSTS, np=2)
    first = cluster.ask(add=1, id="mine")
    cluster.run(3.0)
    cluster.restart()
    cluster.run(2.0)
    again = cluster.ask(add=1, id="mine", timeout=0.0)
    assert cluster.answers[again] == cluster.answers[first]
    assert cluster.run(3.0).state.size == 3


def test_a_request_whose_time_is_over_when_it_comes_is_refused() -> None:
    cluster = started(HOSTS, np=2)
    ticket = cluster.ask(add=1, timeout=0.0, id="late")
    assert cluster.answers[ticket] == (False, "its deadline had passed when it was requested")
    assert cluster.run(2.0).state.size == 2


def test_hosts_whose_members_are_to_leave_are_named_instead_of_the_members() -> None:
    cluster = started(HOSTS, np=6)
    ticket = cluster.ask(hosts=("h1",))
    cluster.run(3.0)
    assert cluster.answers[ticket][0]
    assert {cluster.members[name].host for name in cluster.world} == {"h0"}
    again = cluster.ask(hosts=("h1",))
    cluster.run(1.0)
    assert cluster.answers[again] == (True, "no member is on h1 any more")


def test_what_broke_in_the_world_before_a_switch_is_forgotten_when_all_have_left_it() -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(to=2)
    cluster.run_until(lambda: cluster.phase is Phase.SWITCHING)
    # The others have closed the old world before this one has come to its end.
    cluster.members["m2"].tell(events.Broke, 1, 0, "another member has gone")
    cluster.run(2.0)
    assert cluster.world == ("m0", "m1")
    assert not cluster.said("nobody is missing")
    assert cluster.state.resets == 0


def test_what_breaks_in_the_world_before_a_switch_does_not_matter_to_those_in_the_next() -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(to=2)
    cluster.run_until(lambda: cluster.phase is Phase.SWITCHING)
    cluster.members["m0"].tell(events.Settled, 2, cluster.heard("m0", Switch)[0].step)
    cluster.settle()
    assert cluster.phase is Phase.SWITCHING
    cluster.members["m2"].tell(events.Broke, 1, 0, "another member has gone")
    cluster.run(2.0)
    assert not cluster.said("nobody is missing")


def test_what_breaks_in_the_next_world_while_some_are_on_their_way_is_mended() -> None:
    cluster = started(HOSTS, np=3)
    cluster.ask(to=2)
    cluster.run_until(lambda: cluster.phase is Phase.SWITCHING)
    cluster.members["m0"].tell(events.Broke, 2, 0, "connection reset")
    cluster.run(2.0)
    assert cluster.said("nobody is missing (connection reset)")
