"""Members in messages: by name, or by rank and host where users know no names of ours."""

import re
from typing import Any

import pytest

from midflight.coordinator.core import events
from tests.coordinator.fake_members import Fate, Health
from tests.coordinator.scenario import FakeCluster, started

HOSTS = {"h0": 2, "h1": 2}


def training(**spec: Any) -> FakeCluster:
    return started(HOSTS, by_rank=True, **spec)


def lost_at_work() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.kill("m0")
    cluster.run_until(lambda: cluster.said("lost rank 0 on h0: killed by SIGKILL"))
    cluster.run().kill("m2")  # whose rank is another one now
    return cluster.run(), "lost rank 1 on h1: killed by SIGKILL"


def vanished() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.handle(events.Disconnected(cluster.now, "m2"))
    cluster.handle(events.Probed(cluster.now, "m2", "gone"))
    assert cluster.said("lost rank 2 on h1: its process is gone")
    cluster.handle(events.Exited(cluster.now, "m2", -9, ""))
    return cluster, "rank 2 on h1: killed by SIGKILL"


def newcomer_that_dies() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.fate["m3"] = Fate.DIES
    ticket = cluster.ask(add=1)
    cluster.run_until(lambda: ticket in cluster.answers)
    cluster.lines.append(cluster.answers[ticket][1])
    return cluster, "rank 3 on h1 ended before it was ready: exit code 1"


def dead_before_training() -> tuple[FakeCluster, str]:
    cluster = FakeCluster(HOSTS, by_rank=True)
    cluster.fate["m1"] = Fate.HANGS
    cluster.run(1.0).kill("m1", code=1)
    return cluster.run(), "rank 1 on h0 ended before training began: exit code 1"


def failed_after_training() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.members["m2"].stays = True
    cluster.last_step = cluster.members["m2"].step + 3
    cluster.run_until(lambda: cluster.running == ["m2"]).kill("m2", code=3)
    return cluster.run(), "rank 2 on h1 failed after training: exit code 3"


def one_of_a_fixed_number() -> tuple[FakeCluster, str]:
    cluster = training(fixed_size=True)
    cluster.kill("m1", code=3)
    return cluster.run(), "rank 1 on h0 failed, and the job is of fixed size: exit code 3"


def told_to_end() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.handle(events.Noticed(cluster.now, "m1", 30.0))
    return cluster.run(), "rank 1 on h0 was told to end and leaves at a step boundary"


def finished_early() -> tuple[FakeCluster, str]:
    cluster = training()
    cluster.members["m1"].finished = True
    cluster.members["m1"].health = Health.STUCK
    cluster.members["m1"].tell(events.Finished, 5)
    return cluster.run(5.0), "rank 1 on h0 finished before the others, which continue without it"


@pytest.mark.parametrize(
    "scene",
    [
        lost_at_work,
        vanished,
        newcomer_that_dies,
        dead_before_training,
        failed_after_training,
        one_of_a_fixed_number,
        told_to_end,
        finished_early,
    ],
)
def test_users_who_know_no_names_of_ours_read_ranks_and_hosts(scene: Any) -> None:
    cluster, line = scene()
    assert cluster.said(line), cluster.lines
    assert not [said for said in cluster.lines if re.search(r"\bm\d", said)]
