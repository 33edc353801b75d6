"""Lightning Fabric, of the pinned version, through changes of the world."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("lightning", reason="lightning is not installed; `make test` does")

from midflight.errors import UsageError
from midflight.integrations.fabric import ElasticStrategy
from tests.integrations.changes import alone, endure, steps_printed

SCRIPT = Path(__file__).with_name("scripts") / "fabric_loop.py"
STEPS = 8 * 19  # of fabric_loop.py: the last step of an epoch is a short one


def test_before_it_has_joined_a_strategy_is_a_world_of_one() -> None:
    strategy = ElasticStrategy("cpu")
    ones = torch.ones(2)
    assert (strategy.global_rank, strategy.world_size, strategy.is_global_zero) == (0, 1, True)
    assert strategy.all_reduce(ones) is ones
    assert strategy.all_gather(ones) is ones
    assert strategy.broadcast("said") == "said"
    strategy.barrier()


def test_a_step_before_the_job_is_joined_is_an_error_that_says_so() -> None:
    with pytest.raises(UsageError, match=r"call strategy.join\(model, optimizer\) before"):
        ElasticStrategy("cpu").backward(torch.ones(()), None)


def test_a_closure_and_an_unknown_reduction_are_refused() -> None:
    strategy = ElasticStrategy("cpu")
    with pytest.raises(UsageError, match="has no closure"):
        strategy.optimizer_step(None, closure=lambda: None)
    with pytest.raises(UsageError, match="all_reduce knows sum, mean"):
        strategy.all_reduce(torch.ones(2), reduce_op="median")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_loop_of_fabric_goes_on_through_every_change_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    run, results = endure(tmp_path / "run", SCRIPT)
    assert (run.out / "kept.ckpt").exists()
    assert len({result["named"] for result in results}) == 1
    printed = steps_printed(run)  # each step at most once: by the rank 0 of then
    assert printed == sorted(set(printed)) and len(printed) > STEPS - 5
    undisturbed = alone(tmp_path / "alone", SCRIPT)
    for result in results:
        assert result["step"] == undisturbed["step"] == STEPS
        assert result["rate"] == undisturbed["rate"]
        assert result["weights"] == pytest.approx(undisturbed["weights"], rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_bf16_is_trained_with(
    tmp_path: Path,
) -> None:
    assert alone(tmp_path / "bf16", SCRIPT, "--precision", "bf16-mixed")["step"] == STEPS
