"""What a script's job does by itself: in a process of its own, with no coordinator."""

import contextlib
from collections.abc import Iterator

import pytest
import torch

import midflight as mf
from midflight import leaving
from midflight.runtime.job import Job
from midflight.runtime.membership import Dismissed, Order


@pytest.fixture
def job() -> Iterator[Job]:
    with mf.join(ddp=False) as joined:
        yield joined


def test_a_world_that_is_cut_ends_the_step_between_two_micro_batches(job: Job) -> None:
    batches = job.batches(torch.arange(8), 8, epochs=1, plan={"micro_batch_size": 2})
    first = next(batches)
    assert job.begin(first.issued)
    assert job._group is not None
    job._group.cut()
    assert not job.begin(first.issued)


class FakeMembership:
    """A coordinator that lets every member go which says that it has finished."""

    def __init__(self) -> None:
        self.due = False
        self.finished = 0
        self.said: list[object] = []
        self.link = self

    def finish(self) -> None:
        self.finished += 1

    def next_order(self, step: int, *, idle: bool = False) -> Order:
        return Dismissed("training is over", failed=False)

    def send(self, message: object) -> bool:
        self.said.append(message)
        return True

    def close(self) -> None: ...


def ended_with(error: BaseException | None, *, dismissed: bool = False) -> FakeMembership:
    membership = FakeMembership()
    job = mf.join(ddp=False)
    with contextlib.suppress(SystemExit, ValueError), job:
        job._membership = membership  # type: ignore[assignment]
        if dismissed:
            membership.due = True
            job.boundary()
        if error is not None:
            raise error
    return membership


@pytest.mark.parametrize("error", [None, SystemExit(), SystemExit(0)])
def test_a_script_that_exits_in_good_order_has_finished(error: BaseException | None) -> None:
    assert ended_with(error).finished == 1


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit("no"), KeyboardInterrupt()])
def test_a_script_that_exits_otherwise_has_not(error: BaseException) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        assert not ended_with(error).finished


def test_a_member_that_is_dismissed_does_not_say_that_it_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving, "dismiss", lambda: None)  # it would end the tests' process
    assert not ended_with(None, dismissed=True).finished
