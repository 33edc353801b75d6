"""What the end of a coordinator means: the job's own end, or an accident that is ridden out."""

from dataclasses import replace

import pytest

from midflight.backoff import CALM, LONGEST_RESTART, RESTART
from midflight.coordinator.core.state import Phase, State, initial
from midflight.errors import JobFailed
from midflight.protocol.job import JobSpec
from midflight.run.coordinator import (
    DEATHS_WITHIN,
    MOST_AT_START,
    MOST_DEATHS,
    Deaths,
    job_exit_code,
)

TRAINING = replace(initial(JobSpec("job", ("sh",), 2, 1, 4), 0.0), phase=Phase.STABLE)
SUCCEEDED = replace(TRAINING, phase=Phase.SUCCEEDED, exit_code=0)
FAILED = replace(TRAINING, phase=Phase.FAILED, exit_code=1)
INTERRUPTED = replace(TRAINING, phase=Phase.FAILED, exit_code=130)


@pytest.mark.parametrize(
    ("code", "saved", "job"),
    [
        (0, SUCCEEDED, 0),
        (1, FAILED, 1),
        (130, INTERRUPTED, 130),
        (-9, SUCCEEDED, 0),  # killed when all was over and written down
        (-9, FAILED, 1),
        (1, SUCCEEDED, 0),  # it fell over its own feet on the way out
        (3, TRAINING, 3),  # another coordinator has the job
        (0, TRAINING, 0),  # the store did not take the end, but nothing else ends with 0
        (0, None, 0),
    ],
)
def test_an_end_that_the_store_confirms_is_the_job_s(
    code: int, saved: State | None, job: int
) -> None:
    assert job_exit_code(code, saved, served=True) == job


@pytest.mark.parametrize("code", [1, 2, 70, 130, -9, -11])
@pytest.mark.parametrize("saved", [TRAINING, None])
def test_any_other_end_is_an_accident(code: int, saved: State | None) -> None:
    assert job_exit_code(code, saved, served=True) is None


def test_a_coordinator_that_refuses_to_begin_ends_the_run() -> None:
    assert job_exit_code(2, None, served=False) == 1
    assert job_exit_code(2, TRAINING, served=False) == 1
    assert job_exit_code(1, None, served=False) is None


def test_a_killed_coordinator_is_replaced_at_once() -> None:
    deaths = Deaths()
    assert [deaths.add(-9, lived=1.0, served=True, now=float(n)) for n in range(5)] == [0.0] * 5


def test_one_that_crashes_at_once_is_started_after_growing_pauses() -> None:
    deaths = Deaths()
    pauses = [deaths.add(1, lived=0.5, served=True, now=10.0 * n) for n in range(8)]
    assert pauses == [RESTART * 2**n for n in range(6)] + [LONGEST_RESTART] * 2


def test_one_that_crashes_after_a_calm_time_is_started_soon() -> None:
    deaths = Deaths()
    for number in range(4):
        deaths.add(1, lived=0.5, served=True, now=float(number))
    assert deaths.add(1, lived=CALM + 1, served=True, now=100.0) == RESTART
    assert deaths.add(1, lived=0.5, served=True, now=101.0) == 2 * RESTART


def test_too_many_deaths_within_an_hour_end_the_run() -> None:
    deaths = Deaths()
    for number in range(MOST_DEATHS):
        deaths.add(-9, lived=60.0, served=True, now=float(number))
    with pytest.raises(JobFailed, match="died 21 times within an hour"):
        deaths.add(-9, lived=60.0, served=True, now=30.0)


def test_deaths_are_forgotten_after_an_hour() -> None:
    deaths = Deaths()
    for number in range(10 * MOST_DEATHS):
        deaths.add(-9, lived=60.0, served=True, now=number * DEATHS_WITHIN / (MOST_DEATHS - 1))


def test_one_that_never_got_to_serve_is_given_up_soon() -> None:
    deaths = Deaths()
    for number in range(MOST_AT_START):
        deaths.add(1, lived=0.5, served=False, now=float(number))
    with pytest.raises(JobFailed, match="could not be started"):
        deaths.add(1, lived=0.5, served=False, now=30.0)
