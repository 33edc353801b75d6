"""The parts of the integration of transformers, without a job."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed; `make test` does")

import transformers

from midflight.errors import UsageError
from midflight.integrations.transformers import Trainer, private
from midflight.integrations.transformers.course import Course
from midflight.integrations.transformers.steps import share_of, whole_steps
from midflight.runtime.data.loader import Batch
from midflight.runtime.data.plan import Cursor, Plan, Seat
from midflight.runtime.data.sampler import ElasticBatchSampler
from midflight.runtime.data.schedule import Schedule


def batches(samples: int, rank: int = 0, size: int = 1) -> list[Batch]:
    plan = Plan(samples, 8, micro_batch_size=2, shuffle=False, epochs=1)
    sampler = ElasticBatchSampler(plan, Schedule(Seat(1, rank, size)))
    issued = list(sampler) and list(sampler.issued)
    return [Batch(None, each) for each in issued]


# --- private parts ----------------------------------------------------------------------------


def test_the_pinned_trainer_has_every_part_that_is_used() -> None:
    private.check(transformers.Trainer)


def test_a_part_that_is_missing_is_named_with_its_reason() -> None:
    class Older(transformers.Trainer):
        _get_grad_norm: Any = None

    with pytest.raises(UsageError, match=r"_get_grad_norm \(the norm that is logged\)"):
        private.check(Older)


def test_a_part_that_takes_something_else_is_named() -> None:
    class Newer(transformers.Trainer):
        def _save_checkpoint(self, model: Any) -> None: ...

    with pytest.raises(UsageError, match=r"missing or different: _save_checkpoint \(rank 0"):
        private.check(Newer)


def test_a_part_that_no_longer_reads_what_the_loop_keeps_is_named() -> None:
    class Newer(transformers.Trainer):
        def log(self, logs: dict[str, float], start_time: float | None = None) -> None: ...

    with pytest.raises(UsageError, match="log "):
        private.check(Newer)


# --- steps and epochs -------------------------------------------------------------------------


def test_a_step_is_handed_over_with_all_its_micro_batches() -> None:
    found = [[len(batch.indices) for batch in step] for step in whole_steps(batches(13))]
    assert found == [[2, 2, 2, 2], [2, 2, 1]]


def test_a_step_that_broke_off_is_left_out_and_comes_again() -> None:
    first, second = batches(16)[:4], batches(16)[4:]
    found = list(whole_steps([*first[:3], *first, *second]))
    assert found == [first, second]


def test_the_shares_of_a_step_add_up_over_the_members() -> None:
    for step in range(2):
        steps = [list(whole_steps(batches(13, rank, 3)))[step] for rank in range(3)]
        assert sum(share_of(batch) for own in steps for batch in own) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("samples", "drop_last"), [(64, False), (77, False), (77, True), (7, False)]
)
def test_a_course_has_as_many_steps_as_its_plan(samples: int, drop_last: bool) -> None:
    course = Course(range(samples), 4, 2, drop_last)
    plan = Plan(samples, course.global_batch, drop_last=drop_last, epochs=2)
    assert course.steps_per_epoch == plan.steps_per_epoch
    assert len(course) == 2 * plan.steps_per_epoch
    for step in range(2 * plan.steps_per_epoch):
        cursor = Cursor(*course.cursor(step))
        batch: Any = SimpleNamespace(
            epoch=cursor.epoch, issued=SimpleNamespace(extent=plan.extent_at(cursor))
        )
        after = plan.extent_at(cursor).after
        assert course.ends_epoch(batch) == plan.ended(after)
        assert course.epochs_after(batch) == pytest.approx((step + 1) / plan.steps_per_epoch)


# --- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{"fp16": True}, {"fsdp": "full_shard"}, {"auto_find_batch_size": True}]
)
def test_a_trainer_is_not_made_with_arguments_that_cannot_be_resized(
    given: dict[str, Any], tmp_path: Path
) -> None:
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **given)
    with pytest.raises(UsageError, match="cannot train with these TrainingArguments"):
        Trainer(model=torch.nn.Linear(1, 1), args=arguments)
    with pytest.raises(UsageError, match="cannot train with these TrainingArguments"):
        Trainer(torch.nn.Linear(1, 1), arguments)
