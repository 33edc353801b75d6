"""A larger world answers for its request only once it has completed a step."""

from dataclasses import replace
from typing import Any

from midflight.coordinator.core import events, trial
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import Change, Phase
from tests.coordinator.scenario import TICK, FakeCluster, over, stable, started

HOSTS = {"h0": 4, "h1": 4}
ERROR = "Traceback ...\nValueError: batch of 3"


def on_trial(cluster: FakeCluster, **wish: Any) -> int:
    """All have entered the larger world, and its first step takes its time."""
    ticket = cluster.ask(**(wish or {"add": 2}))
    assert cluster.phase is Phase.SWITCHING
    for _ in range(100):
        if cluster.state.trial is not None:
            return ticket
        cluster.now += TICK
        cluster.training.train()
        cluster.settle()
    raise AssertionError("nobody entered the new world")


def raises(cluster: FakeCluster, *names: str) -> None:
    for name in names:
        cluster.members[name].tell(events.Failed, ERROR, "ValueError")
        cluster.settle()
        cluster.kill(name, code=1, tail=ERROR)
    cluster.settle()


def test_a_request_is_answered_by_the_first_step_and_not_before() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    assert cluster.phase is Phase.STABLE and cluster.state.size == 4
    assert ticket not in cluster.answers
    step = cluster.promises.done
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0] and cluster.promises.done > step
    assert cluster.answers[ticket][1].startswith("resized from 2 to 4 members at step")
    assert cluster.state.trial is None


def test_a_newcomer_that_raises_in_its_first_step_is_the_reason_and_the_old_size_goes_on() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    raises(cluster, "m3")
    ok, detail = cluster.answers[ticket]
    assert not ok
    assert "its script raised ValueError: batch of 3; the resize was undone" in detail
    done = cluster.promises.done
    cluster.run(5.0)
    assert stable(cluster) and cluster.world == ("m0", "m1")
    assert cluster.state.wanted == 2 and cluster.promises.done > done
    assert cluster.running == ["m0", "m1"]


def test_an_old_member_that_raises_there_takes_the_newcomers_with_it() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    raises(cluster, "m1")
    assert not cluster.answers[ticket][0] and "ValueError" in cluster.answers[ticket][1]
    cluster.run_until(lambda: stable(cluster) and cluster.state.size == 2)
    assert "m0" in cluster.world and not {"m2", "m3"} & {*cluster.world}


def test_a_script_that_raises_everywhere_ends_the_job_with_that_reason() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    raises(cluster, "m0", "m1", "m2", "m3")
    cluster.run_until(lambda: over(cluster))
    assert not cluster.answers[ticket][0] and "ValueError: batch of 3" in cluster.answers[ticket][1]
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_a_newcomer_whose_process_dies_there_is_the_reason_too() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster, add=1)
    cluster.kill("m2")
    cluster.settle()
    ok, detail = cluster.answers[ticket]
    assert (ok, "killed by SIGKILL; the resize was undone" in detail) == (False, True)
    cluster.run(5.0)
    assert stable(cluster) and cluster.state.size == 2


def test_an_old_member_that_is_killed_there_is_mended_and_the_change_stands() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    cluster.kill("m1")
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0] and cluster.state.wanted == 4
    cluster.run_until(lambda: stable(cluster) and cluster.state.size == 4)


def test_old_members_that_leave_do_not_take_the_state_with_them() -> None:
    """All of them are replaced: nobody else could go on where a newcomer fails."""
    cluster = started(HOSTS, np=2)
    ticket = cluster.ask(add=2, names=("m0", "m1"))
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0]
    cluster.run(2.0)
    assert stable(cluster) and not {"m0", "m1"} & {*cluster.world}


def test_a_coordinator_that_is_restarted_meanwhile_answers_whoever_asks_again() -> None:
    cluster = started(HOSTS, np=2)
    on_trial(cluster, add=1, id="r1")
    cluster.restart()
    ticket = cluster.ask(add=1, id="r1")
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0] and cluster.state.size == 3
    assert cluster.state.wanted == 3


def test_a_job_that_ends_there_has_made_the_change() -> None:
    cluster = started(HOSTS, np=2)
    ticket = on_trial(cluster)
    for name in cluster.world:
        cluster.members[name].finished = True
        cluster.members[name].tell(events.Finished, cluster.members[name].step)
    cluster.settle()
    assert cluster.answers[ticket][0]


def test_a_smaller_world_is_answered_at_once() -> None:
    cluster = started(HOSTS, np=3)
    ticket = cluster.ask(remove=1)
    cluster.run_until(lambda: ticket in cluster.answers)
    assert cluster.answers[ticket][0] and cluster.state.trial is None


def test_a_world_that_was_entered_later_than_published_is_on_trial_from_there() -> None:
    cluster = started(HOSTS, np=2)
    on_trial(cluster)
    state = cluster.state
    assert state.trial is not None
    draft = Draft(replace(state, trial=None), cluster.now)
    entered = state.trial.step + 2
    draft.set_members(cluster.world, step=entered)
    change = Change(state.trial.request, 4, state.trial.joiners, step=state.trial.step)
    trial.begin(draft, change, 2, "resized")
    trial.look(draft)
    assert draft.state.trial is not None, "nobody has done a step there"
    draft.set_members(cluster.world, step=entered + 1)
    trial.look(draft)
    assert draft.state.trial is None
