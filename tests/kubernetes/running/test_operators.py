"""Operators come and go; jobs do not notice."""

import time

import pytest

from tests.kubernetes.running.jobs import Jobs
from tests.kubernetes.running.operators import Operators

pytestmark = pytest.mark.slow


def test_the_second_operator_takes_over_within_seconds_and_nothing_is_done_twice(
    jobs: Jobs, operators: Operators
):
    jobs.idle("idle", workers=2)
    jobs.wait_workers("idle", 2)
    first = operators.leader
    second = operators.start()
    before = {name: pod["metadata"]["uid"] for name, pod in jobs.pods().items()}
    operators.kill(first)
    begin = time.monotonic()
    jobs.scale_out("idle", "idle-1", 1)
    jobs.wait_workers("idle", 3)
    assert time.monotonic() - begin < 30
    assert operators.leader == second
    after = {name: pod["metadata"]["uid"] for name, pod in jobs.pods().items()}
    assert after.items() >= before.items()
    assert set(after) - set(before) == {"idle-worker-2"}


def test_what_was_asked_for_while_no_operator_ran_is_carried_out_when_one_is_back(
    jobs: Jobs, operators: Operators
):
    jobs.idle("idle", workers=2)
    jobs.wait_workers("idle", 2)
    operators.stop(operators.leader)
    jobs.scale_in("idle", "idle-1", pods=["idle-worker-0"])
    jobs.idle("second", workers=1)
    assert set(jobs.pods()) == {"idle-launcher", "idle-worker-0", "idle-worker-1"}
    operators.start()
    jobs.wait_workers("idle", 1)
    jobs.wait_workers("second", 1)
    assert "idle-worker-0" not in jobs.pods()


def test_the_api_server_may_restart(jobs: Jobs):
    jobs.idle("idle", workers=1)
    jobs.wait_workers("idle", 1)
    jobs.cluster.plane.restart_api_server()
    jobs.scale_out("idle", "idle-1", 1)
    jobs.wait_workers("idle", 2)


def test_an_operator_that_is_told_to_stop_gives_its_lease_back(jobs: Jobs, operators: Operators):
    jobs.idle("idle", workers=1)
    jobs.wait_workers("idle", 1)
    leader = operators.leader
    operators.stop(leader)
    assert operators.leader == ""
    assert "told to stop; jobs keep running" in operators.log(leader).read_text()
