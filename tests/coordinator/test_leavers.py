"""Members that were let go: how long each may take to end, and who is told."""

from collections import Counter
from dataclasses import replace

import pytest

from midflight.coordinator.core import events, leavers
from midflight.coordinator.core.commands import Probe
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.leavers import LOOK_AGAIN, LOOKS_AT_ONCE
from midflight.coordinator.core.state import HostState, MemberState, Mode, Phase, Stage, initial
from midflight.coordinator.core.status import status
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Dismiss
from tests.coordinator.fake_members import Health
from tests.coordinator.scenario import FakeCluster, started

HOSTS = {"h0": 3, "h1": 3}


def running_on(*names: str) -> FakeCluster:
    """Training is complete, and the scripts of these members are not."""
    cluster = started(HOSTS, np=3, grace=10)
    cluster.last_step = cluster.promises.done + 5
    for name in names:
        cluster.members[name].stays = True
    return cluster.run_until(lambda: cluster.phase is Phase.ENDING)


@pytest.mark.parametrize("hangs_up", [True, False])
def test_a_script_may_run_on_after_training_for_as_long_as_it_likes(hangs_up: bool) -> None:
    cluster = running_on("m1")
    if hangs_up:  # as a member does that has left its `with` block
        cluster._close(cluster.members["m1"])
    cluster.run(300.0)
    assert (cluster.ended, cluster.running) == (None, ["m1"])
    cluster.kill("m1", code=0)
    cluster.run_until(lambda: cluster.ended is not None)
    assert cluster.ended == (0, "")


def test_who_is_waited_for_after_training_is_said_ever_more_seldom() -> None:
    cluster = running_on("m1")
    cluster.run(29.0)
    assert not cluster.said("waiting for")
    cluster.run(172.0)
    assert [line for line in cluster.lines if "waiting for" in line] == [
        f"waiting for m1, which has not ended since training did {seconds} s ago"
        for seconds in (30, 60, 120)
    ]
    assert "waiting for m1" in status(cluster.state, cluster.now).detail


def test_of_many_that_are_waited_for_a_few_are_named() -> None:
    cluster = started({"h0": 9}, np=6)
    cluster.last_step = cluster.promises.done + 5
    for member in cluster.members.values():
        member.stays = True
    cluster.run_until(lambda: cluster.phase is Phase.ENDING).run(31.0)
    assert cluster.said("waiting for m0, m1, m2 and 3 more, which have not ended since training")
    cluster.kill("m2", "m3", "m4", "m5", code=0)
    cluster.run(31.0)
    assert cluster.said("waiting for m0 and m1, which have not ended")


def test_a_process_that_is_stopped_after_training_is_ended_after_the_grace() -> None:
    cluster = running_on("m1")
    cluster._close(cluster.members["m1"])
    cluster.members["m1"].health = Health.STOPPED
    cluster.run(9.0)
    assert cluster.ended is None
    cluster.run(2.0)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert "m1 failed after training: its process is stopped" in cluster.ended[1]
    assert cluster.running == []


def test_a_process_that_is_stopped_much_later_is_found_as_well() -> None:
    cluster = running_on("m1")
    cluster._close(cluster.members["m1"])
    cluster.run(60.0)
    cluster.members["m1"].health = Health.STOPPED
    cluster.run(2 * LOOK_AGAIN)
    assert cluster.ended is not None and cluster.ended[0] == 1


def test_scripts_that_run_on_after_training_are_ended_at_once_if_somebody_wishes() -> None:
    cluster = running_on("m1")
    cluster.run(60.0)
    cluster.client(events.StopAsked, "interrupted", 130)
    assert cluster.ended == (130, "interrupted")


def test_the_processes_of_a_large_world_are_looked_at_in_turns() -> None:
    now, many = 1000.0, 8 * LOOKS_AT_ONCE
    let_go = MemberState(
        "", "h0", 0, "", born_at=0.0, stage=Stage.LEAVING, finished=True, moved_at=0.0
    )
    state = replace(
        initial(JobSpec("job", ("python",), many, 1, many), 0.0),
        mode=Mode.ELASTIC,
        phase=Phase.ENDING,
        hosts={"h0": HostState("h0", many, connected=True)},
        members={f"m{n}": replace(let_go, name=f"m{n}") for n in range(many)},
    )
    looks: Counter[str] = Counter()
    for _ in range(100):
        now += 0.1
        draft = Draft(state, now)
        leavers.watch(draft)
        state = draft.state
        assert len(draft.commands) <= LOOKS_AT_ONCE
        looks.update(look.member for look in draft.commands if isinstance(look, Probe))
    assert len(looks) == many and set(looks.values()) == {2}


def test_a_leaver_that_does_not_end_within_the_grace_is_ended_and_fails_nothing() -> None:
    cluster = started(HOSTS, np=3, grace=10)
    cluster.members["m2"].stays = True
    cluster.ask(remove=1)
    cluster.run(8.0)
    assert cluster.running == ["m0", "m1", "m2"]
    cluster.run(8.0)
    assert cluster.running == ["m0", "m1"] and cluster.phase is Phase.STABLE
    cluster.last_step = cluster.promises.done + 5
    cluster.run_until(lambda: cluster.ended is not None)
    assert cluster.ended == (0, "")


def test_nor_does_one_that_is_ended_while_the_job_ends() -> None:
    cluster = started(HOSTS, np=3, grace=10)
    cluster.members["m2"].stays = True
    cluster.ask(remove=1)
    cluster.last_step = cluster.promises.done + 5
    cluster.run_until(lambda: cluster.phase is Phase.ENDING).run(11.0)
    assert cluster.ended == (0, "") and cluster.running == []


def test_one_that_is_told_to_leave_in_the_middle_of_training_has_the_grace() -> None:
    cluster = started(HOSTS, np=3, grace=10)
    for member in cluster.members.values():
        member.stays, member.health = True, Health.STUCK
    cluster.client(events.StopAsked, "nobody is wanted any more", 0)
    cluster.run(11.0)
    assert cluster.ended is not None and cluster.ended[0] == 1
    assert "it did not end within 10 s" in cluster.ended[1] and cluster.running == []


def test_a_script_that_has_finished_early_may_run_on_too() -> None:
    cluster = started(np=3, grace=10)
    member = cluster.members["m1"]
    member.stays = member.finished = True
    member.tell(events.Finished, member.step)
    cluster.run(60.0)
    assert cluster.world == ("m0", "m2") and "m1" in cluster.running


def test_the_first_of_those_who_are_left_after_training_is_named_to_all() -> None:
    """It does what is done once for all, such as the last checkpoint."""
    cluster = started(HOSTS, np=3)
    cluster.last_step = cluster.promises.done + 5
    cluster.mute = {"m0"}  # it is writing, say
    cluster.run(2.0)
    cluster.kill("m0")
    cluster.mute.clear()
    cluster.run_until(lambda: cluster.ended is not None)
    assert [cluster.heard(name, Dismiss)[0].first for name in ("m1", "m2")] == ["m1", "m1"]
