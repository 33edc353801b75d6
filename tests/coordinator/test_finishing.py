"""How a job ends: by itself, in the middle of a change, after a late death, by somebody's wish."""

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Phase
from midflight.coordinator.core.status import status
from midflight.protocol.messages import Dismiss, Over
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, started

HOSTS = {"h0": 3, "h1": 3}
END = 30


def near_the_end(**spec: int) -> FakeCluster:
    cluster = started(HOSTS, **{"np": 3, **spec})
    cluster.last_step = END
    return cluster


def finish(cluster: FakeCluster) -> None:
    cluster.run_until(lambda: cluster.ended is not None)


def test_when_all_have_finished_they_are_dismissed_and_the_job_has_succeeded() -> None:
    cluster = near_the_end()
    finish(cluster)
    assert cluster.ended == (0, "")
    assert cluster.phase is Phase.SUCCEEDED
    assert cluster.running == []
    for name in ("m0", "m1", "m2"):
        assert cluster.heard(name, Dismiss) == [
            Dismiss("training is complete", failed=False, first="m0")
        ]


def test_the_last_step_is_in_the_store_when_the_job_is_over() -> None:
    cluster = near_the_end()
    cluster.members["m1"].stays = True
    cluster.run_until(lambda: cluster.phase is Phase.ENDING)
    assert (cluster.saved.phase, cluster.saved.best_step) == (Phase.ENDING, END)
    cluster.kill("m1", code=0)
    finish(cluster)
    assert (cluster.saved.phase, cluster.saved.best_step) == (Phase.SUCCEEDED, END)
    assert status(cluster.saved, cluster.now).step == END


def test_steps_that_are_heard_of_after_a_stop_are_in_the_store_too() -> None:
    cluster = started(HOSTS, np=3)
    before = cluster.saved.best_step
    cluster.training.train()  # nobody has told of it yet
    cluster.client(events.StopAsked, "interrupted", 130)
    cluster.run(0.2)
    assert cluster.saved.phase is Phase.FAILED
    assert cluster.saved.best_step == max(m.step for m in cluster.members.values()) > before


def test_a_job_that_is_told_that_it_is_done_lets_its_members_go_and_has_succeeded() -> None:
    cluster = started(HOSTS, np=3)
    cluster.client(events.StopAsked, "nobody is wanted any more", 0)
    cluster.run(2.0)
    assert cluster.ended == (0, "")
    assert [word.failed for name in "012" for word in cluster.heard(f"m{name}", Dismiss)] == [
        False
    ] * 3


def test_being_told_again_that_it_is_done_gives_nobody_more_time() -> None:
    cluster = started(HOSTS, np=3, grace=5.0)
    cluster.handle(events.StopAsked(cluster.now, "done", 0))
    leaving = {name: member.moved_at for name, member in cluster.state.members.items()}
    cluster.now += 0.5
    cluster.handle(events.StopAsked(cluster.now, "done", 0))
    assert cluster.phase is Phase.ENDING
    assert leaving == {name: member.moved_at for name, member in cluster.state.members.items()}


def test_nobody_is_dismissed_before_all_have_finished() -> None:
    cluster = near_the_end()
    cluster.mute = {"m2"}
    cluster.run(4.0)
    assert cluster.members["m0"].finished
    assert cluster.phase is Phase.STABLE and cluster.running == ["m0", "m1", "m2"]
    cluster.mute.clear()
    finish(cluster)
    assert cluster.ended == (0, "")


def test_a_change_that_is_being_prepared_is_answered_that_training_finished() -> None:
    cluster = near_the_end()
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1, timeout=600.0)
    finish(cluster)
    ok, detail = cluster.answers[ticket]
    assert not ok and "training finished before the change could be made" in detail
    assert cluster.ended == (0, "")
    assert cluster.running == [], "the joiner is not left over"


def test_a_switch_that_lies_beyond_the_end_is_answered_that_training_finished() -> None:
    cluster = started(HOSTS, np=3)
    cluster.last_step = cluster.promises.done + 1
    ticket = cluster.ask(add=1)
    assert cluster.phase is Phase.SWITCHING
    finish(cluster)
    assert "training finished" in cluster.answers[ticket][1]
    assert cluster.ended == (0, "") and cluster.running == []


def test_queued_requests_are_answered_too() -> None:
    cluster = near_the_end()
    cluster.fate["m3"] = Fate.HANGS
    cluster.ask(add=1, timeout=600.0)
    queued = cluster.ask(add=1, timeout=600.0)
    finish(cluster)
    assert "training finished" in cluster.answers[queued][1]
    late = cluster.ask(add=1)
    assert cluster.answers[late] == (False, "the job is over (succeeded)")


def test_one_that_dies_after_it_finished_costs_the_others_nothing() -> None:
    cluster = near_the_end()
    cluster.mute = {"m2"}
    cluster.run(4.0)
    assert cluster.members["m1"].finished
    cluster.kill("m1")
    cluster.run(0.5)
    cluster.mute.clear()
    finish(cluster)
    assert cluster.ended == (0, "")


def test_one_that_had_not_finished_is_brought_to_the_end_by_one_that_had() -> None:
    cluster = near_the_end()
    cluster.mute = {"m2"}
    cluster.run(4.0)
    cluster.members["m2"].finished = False
    cluster._words.pop("member m2", None)  # it was about to finish, and did not
    cluster.members["m2"].step -= 1
    cluster.promises.heard_of -= 1
    cluster.mute.clear()
    cluster.kill("m1")
    cluster.run(0.5)
    assert cluster.world == ("m0", "m2")
    cluster.members["m2"].finished = True
    cluster.members["m2"].tell(events.Finished, END)
    finish(cluster)
    assert cluster.ended == (0, "")


def test_a_script_that_fails_after_training_fails_the_job() -> None:
    cluster = near_the_end()
    cluster.members["m1"].stays = True
    cluster.run_until(lambda: cluster.phase is Phase.ENDING)
    cluster.kill("m1", code=1, tail="OSError: disk full\n")
    finish(cluster)
    assert cluster.ended is not None
    assert cluster.ended[0] == 1
    assert "m1 failed after training: exit code 1: OSError: disk full" in cluster.ended[1]


def test_a_failure_after_training_is_in_the_store_when_the_last_one_has_ended() -> None:
    cluster = near_the_end()
    for name in ("m0", "m1", "m2"):
        cluster.members[name].stays = True
    cluster.run_until(lambda: cluster.phase is Phase.ENDING)
    for name in ("m0", "m1", "m2"):
        cluster.kill(name, code=3)
        cluster.run(0.5)
    finish(cluster)
    assert (cluster.saved.phase, cluster.saved.exit_code) == (Phase.FAILED, 1)


def leaving_on_two_hosts() -> FakeCluster:
    cluster = started({"h0": 1, "h1": 2}, np=3, grace=10)
    cluster.last_step = END
    for name in ("m1", "m2"):
        cluster.members[name].stays = True
    return cluster.run_until(lambda: cluster.phase is Phase.ENDING)


def test_an_agent_that_dies_while_its_members_leave_does_not_hold_up_the_end() -> None:
    cluster = leaving_on_two_hosts()
    cluster.kill_agent("h1")
    cluster.run(11.0)
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_an_agent_that_is_started_again_while_its_members_leave_tells_that_they_are_gone() -> None:
    cluster = leaving_on_two_hosts()
    cluster.kill_agent("h1")
    cluster.run(0.5)
    cluster.add_host("h1", 2)
    cluster.run(1.0)
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_an_agent_that_hangs_up_while_its_members_leave_may_come_back() -> None:
    cluster = leaving_on_two_hosts()
    cluster.hang_up("h1")
    cluster.run(7.0)
    assert cluster.ended is None
    cluster.dial_again("h1")
    for name in ("m1", "m2"):
        cluster.kill(name, code=0)
    finish(cluster)
    assert cluster.ended == (0, "")


def test_leavers_are_waited_for_at_the_end() -> None:
    cluster = near_the_end()
    cluster.members["m2"].stays = True
    cluster.ask(remove=1)
    cluster.run_until(lambda: cluster.phase is Phase.ENDING)
    assert cluster.running == ["m2"]
    cluster.kill("m2", code=0)
    finish(cluster)
    assert cluster.ended == (0, "")


def test_somebody_s_wish_ends_the_job_with_his_code() -> None:
    cluster = started(HOSTS, np=3)
    cluster.fate["m3"] = Fate.HANGS
    ticket = cluster.ask(add=1)
    cluster.client(events.StopAsked, "interrupted", 130)
    assert cluster.ended == (130, "interrupted")
    assert cluster.answers[ticket] == (False, "interrupted")
    cluster.client(events.StopAsked, "interrupted", 130)  # impatience changes nothing
    assert cluster.phase is Phase.FAILED


def test_after_the_end_nothing_is_decided_any_more() -> None:
    cluster = near_the_end()
    finish(cluster)
    told = len(cluster.told)
    cluster.add_host("h5", 2)
    cluster.client(events.Broke, "m0", 1, 5, "reset")
    cluster.client(events.Disconnected, "m0")
    cluster.client(events.HostLost, "h0")
    cluster.run(10.0)
    assert len(cluster.told) == told and cluster.running == []


def test_a_stuck_straggler_is_taken_out_after_the_hang_timeout_and_the_rest_finishes() -> None:
    cluster = started(HOSTS, np=3, hang_timeout=10)
    cluster.last_step = END
    cluster.run(1.0)
    cluster.members["m1"].health = Health.STUCK
    finish(cluster)
    assert cluster.ended == (0, "")


def test_a_leaver_that_is_lost_with_its_host_does_not_fail_the_job() -> None:
    cluster = started({"h0": 2, "h1": 1}, np=3)
    cluster.last_step = END
    leaver = next(name for name, each in cluster.state.members.items() if each.host == "h1")
    cluster.members[leaver].stays = True
    cluster.ask(names=(leaver,), remove=1)
    cluster.run_until(lambda: cluster.phase is Phase.ENDING)
    cluster.kill_agent("h1")
    finish(cluster)
    assert cluster.ended == (0, "")


def finishes(cluster: FakeCluster, name: str) -> None:
    """Its script comes to its end, though the others train on."""
    member = cluster.members[name]
    member.finished = True
    member.tell(events.Finished, member.step)
    cluster.settle()


def test_the_others_go_on_without_a_member_that_has_finished_early() -> None:
    cluster = started(np=3)
    finishes(cluster, "m1")
    cluster.run(5.0)
    assert cluster.world == ("m0", "m2")
    assert cluster.heard("m1", Dismiss) and not cluster.heard("m1", Dismiss)[0].failed
    assert cluster.state.resets == 0
    assert not cluster.heard("m0", Over)
    assert cluster.state.wanted == 2, "it is done, so nobody replaces it"
    step = cluster.members["m0"].step
    cluster.run(1.0)
    assert cluster.members["m0"].step > step


def test_nobody_is_let_go_early_while_one_of_the_others_is_busy_after_its_last_step() -> None:
    cluster = started(np=3)
    cluster.members["m0"].health = Health.STUCK  # it writes the model, say
    finishes(cluster, "m1")
    finishes(cluster, "m2")
    cluster.run(30.0)
    assert cluster.world == ("m0", "m1", "m2")
    cluster.members["m0"].health = Health.RUNNING
    finishes(cluster, "m0")
    cluster.run(1.0)
    assert cluster.ended == (0, "")


def test_a_member_that_has_finished_early_is_needed_if_too_few_would_be_left() -> None:
    cluster = started(np=2, min_np=2)
    finishes(cluster, "m1")
    cluster.run(5.0)
    assert cluster.world == ("m0", "m1")
