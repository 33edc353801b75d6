"""A job of one process, without an agent: what it does, and refuses, when its world is broken."""

import pytest
import torch

import midflight as mf
from midflight.runtime import reduction

MODEL = torch.nn.Linear(2, 1)


def lose_a_member(job: mf.Job) -> None:
    with pytest.raises(mf.WorldChanged), job.guard():
        raise RuntimeError("gloo: connection closed by peer")


def test_no_optimizer_steps_in_a_step_that_is_broken() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        job.check()
        MODEL(torch.ones(1, 2)).sum().backward()
        lose_a_member(job)
        with pytest.raises(mf.WorldChanged, match="do the step again"):
            optimizer.step()
        job.check()
        assert job.step_number == 0
        optimizer.step()
        job.check()
        assert job.step_number == 1
        lose_a_member(job)
    optimizer.step()  # is the script's own business again


def test_a_step_that_broke_between_its_halves_did_not_happen() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        batch = next(job.batches([torch.ones(2)] * 4, global_batch_size=2, epochs=1))
        assert job.backward(MODEL(batch.data).sum())
        lose_a_member(job)
        assert not job.apply()
        assert job.step_number == 0


def test_a_step_is_counted_once_by_step_and_check() -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=1.0)
    with mf.join(model=MODEL, optimizer=optimizer) as job:
        job.check()
        for number in (1, 2):
            assert job.step(MODEL(torch.ones(1, 2)).sum())
            job.check()
            assert job.step_number == number


def test_a_guard_waits_for_a_fake_device_before_it_lets_results_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cut_meanwhile(*_: object) -> None:
        raise mf.WorldChanged("the group was cut")

    with mf.join(model=MODEL) as job:
        job.check()
        monkeypatch.setattr(reduction, "wait_for_device", cut_meanwhile)
        with pytest.raises(mf.WorldChanged), job.guard():
            pass
        job.check()
        assert job.step_number == 0


def test_a_world_that_is_cut_ends_the_step_between_two_micro_batches() -> None:
    with mf.join(ddp=False) as job:
        batches = job.batches(torch.arange(8), 8, epochs=1, plan={"micro_batch_size": 2})
        first = next(batches)
        assert job.begin(first.issued)
        assert job._group is not None
        job._group.cut()
        assert not job.begin(first.issued)
