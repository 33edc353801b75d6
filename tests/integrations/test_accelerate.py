"""Accelerate, of the pinned version, through changes of the world."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("accelerate", reason="accelerate is not installed; `make test` does")

from midflight.errors import UsageError
from midflight.integrations.accelerate import Accelerator, ElasticOptimizer
from tests.integrations.changes import alone, endure, steps_printed

SCRIPT = Path(__file__).with_name("scripts") / "accelerate_loop.py"
STEPS = 8 * 19  # of accelerate_loop.py: the last step of an epoch is a short one


def test_what_cannot_be_resized_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match=r"fsdp_plugin= splits .* keep accelerate\.Accelerator"):
        Accelerator(cpu=True, fsdp_plugin=object())
    with pytest.raises(UsageError, match="micro_batch_size"):
        Accelerator(cpu=True, gradient_accumulation_steps=2)


def test_a_step_before_the_job_is_joined_and_a_closure_are_errors() -> None:
    accelerator = Accelerator(cpu=True)
    optimizer = accelerator.prepare(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))
    with pytest.raises(UsageError, match=r"call accelerator.join\(model, optimizer\) before"):
        accelerator.backward(torch.ones(()))
    with pytest.raises(UsageError, match="has no closure"):
        optimizer.step(lambda: None)


def test_an_accelerate_that_wraps_optimizers_in_another_way_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ElasticOptimizer, "_is_accelerate_prepared", False)
    with pytest.raises(UsageError, match="wraps an optimizer that is prepared"):
        Accelerator(cpu=True).prepare(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_of_accelerate_goes_on_through_every_change_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    run, results = endure(tmp_path / "run", SCRIPT)
    assert (run.out / "kept.ckpt").exists()
    printed = steps_printed(run)
    assert printed == sorted(set(printed)) and len(printed) > STEPS - 5
    undisturbed = alone(tmp_path / "alone", SCRIPT)
    for result in results:
        assert result["step"] == undisturbed["step"] == STEPS
        assert result["rate"] == undisturbed["rate"]
        assert result["weights"] == pytest.approx(undisturbed["weights"], rel=1e-4, abs=1e-4)
