"""Lightning Fabric, of the pinned version, through changes of the world."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning", reason="lightning is not installed; `make test` does")

from midflight.errors import UsageError
from midflight.integrations.fabric import ElasticStrategy
from tests.e2e.runs import PATIENCE, Run, by_rank, kill, ranked

SCRIPT = Path(__file__).with_name("scripts") / "fabric_loop.py"
FLAGS = ("--min-np", "1", "--max-np", "4", "--cooldown", "60", "60")
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
    home, out = tmp_path / "run", tmp_path / "run" / "out"
    with Run(home, *FLAGS, script=["python", str(SCRIPT), str(out)], np=2) as run:
        run.await_stable(2, beyond=5)
        assert run.resize("--to", "4").returncode == 0
        grown = run.progress()
        assert (len(ranked(grown)), grown["resets"]) == (4, 0)
        kill(by_rank(grown, 0))
        run.await_status(lambda s: s["resets"] == 1 and s["phase"] == "stable")
        struck = run.progress()
        assert run.resize("--remove-member", by_rank(struck, 0)["name"]).returncode == 0
        run.progress()
        run.hurry()
        assert run.wait() == 0
        assert "and was replaced" not in run.output
        audit = run.command("audit", "job")
        results = run.results()
        assert run.left_over() == []
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "every sample was used exactly once" in audit.stdout
    assert sorted(result["first"] for result in results) == [False, True]
    assert len({result["named"] for result in results}) == 1
    printed = [line.partition(">:")[2] for line in run.lines if " of a world of " in line]
    numbers = [int(line.split()[1]) for line in printed]
    assert numbers == sorted(set(numbers))  # each step at most once: by the rank 0 of then
    assert len(numbers) > STEPS - 5
    undisturbed = alone(tmp_path / "alone")
    for result in results:
        assert result["step"] == undisturbed["step"] == STEPS
        assert result["rate"] == undisturbed["rate"]
        assert result["weights"] == pytest.approx(undisturbed["weights"], rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_bf16_is_trained_with(
    tmp_path: Path,
) -> None:
    assert alone(tmp_path / "bf16", "--precision", "bf16-mixed")["step"] == STEPS


def alone(folder: Path, *options: str) -> dict[str, Any]:
    """What the script comes to in a process of its own."""
    folder.mkdir()
    (folder / "hurry").touch()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *options],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "kept.ckpt").exists()
    result: dict[str, Any] = json.loads((folder / "m0.json").read_text())
    return result
