"""What a script's job does in a process of its own, without an agent."""

from collections.abc import Iterator

import pytest
import torch

import midflight as mf
from midflight.runtime.job import Job


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
