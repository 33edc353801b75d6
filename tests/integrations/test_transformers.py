"""Hugging Face's Trainer, of the pinned version, through changes of the world."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import Run, kill, ranked
from tests.integrations.changes import FLAGS, alone, check_audit, endure

pytest.importorskip("transformers", reason="transformers is not installed; `make test` does")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).with_name("scripts") / "hugging_face.py"
SERIES = ("losses", "norms", "rates", "evaluated", "weights")
ROUNDING = 1e-4  # of single precision, through 160 steps of Adam


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def script(out: Path, *options: str) -> list[str]:
    return ["python", str(SCRIPT), str(out), *options]


def check_same(result: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    assert (result["step"], result["epoch"]) == (undisturbed["step"], undisturbed["epoch"])
    for name in SERIES:
        assert result[name] == pytest.approx(undisturbed[name], rel=ROUNDING, abs=ROUNDING), name


@pytest.mark.parametrize("accumulate", ["1", "6"])
def test_alone_it_is_the_trainer_that_it_was(tmp_path: Path, accumulate: str) -> None:
    """To rounding, with samples that differ in how many labels they have, and short last steps."""
    mine = "from midflight.integrations.transformers import Trainer"
    original = tmp_path / "original.py"
    shutil.copy(SCRIPT.with_name("pace.py"), tmp_path)
    original.write_text(SCRIPT.read_text().replace(mine, "from transformers import Trainer"))
    options = ("--order", "sequential", "--accumulate", accumulate)
    elastic = alone(tmp_path / "elastic", SCRIPT, *options)
    check_same(elastic, alone(tmp_path / "plain", original, *options))


def test_a_trainer_goes_on_through_every_change_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    _, results = endure(tmp_path / "run", SCRIPT)
    undisturbed = alone(tmp_path / "alone", SCRIPT)
    for result in results:
        check_same(result, undisturbed)


def test_the_death_of_the_first_member_while_all_evaluate_changes_nothing(tmp_path: Path) -> None:
    words = script(tmp_path / "run" / "out", "--dies", "m0")
    with Run(tmp_path / "run", *FLAGS, script=words, np=3) as run:
        run.hurry()
        assert run.wait() == 0
        assert not (run.out / "m0.json").exists()
        assert "and was replaced" not in run.output
        check_audit(run)
        results = run.results()
        assert run.left_over() == []
    assert len(results) >= 2
    undisturbed = alone(tmp_path / "alone", SCRIPT)
    for result in results:
        check_same(result, undisturbed)


def test_a_trainer_goes_on_from_its_checkpoint_when_everybody_has_died(tmp_path: Path) -> None:
    home, out = tmp_path / "run", tmp_path / "run" / "out"
    keep = ("--save-steps", "15")
    with Run(home, *FLAGS, script=script(out, *keep), np=2) as run:
        run.await_stable(2, beyond=31)
        kill(*ranked(run.status()))
        assert run.wait() == 1
    with Run(home, *FLAGS, script=script(out, *keep, "--resume"), np=3) as run:
        run.hurry()
        assert run.wait() == 0
        audit = run.command("audit", "job")
        results = run.results()
        assert run.left_over() == []
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "every sample was used exactly once" in audit.stdout
    assert "checkpoint of step " in audit.stdout  # and not from the beginning
    undisturbed = alone(tmp_path / "alone", SCRIPT)
    assert len(results) == 3
    for result in results:
        check_same(result, undisturbed)


def test_a_run_that_stops_early_and_keeps_its_best_model_does_so_on_all_members(
    tmp_path: Path,
) -> None:
    """Where the metric stops getting better: with a rate of zero, after the first evaluation."""
    home, out = tmp_path / "run", tmp_path / "run" / "out"
    words = ["python", str(SCRIPT.with_name("early_stop.py")), str(out)]
    with Run(home, *FLAGS, script=words, np=2) as run:
        assert run.wait() == 0, run.output
        results = run.results()
    assert [result["step"] for result in results] == [30, 30]
    assert {result["best"] for result in results} == {str(out / "kept" / "checkpoint-10")}
    assert results[0]["history"] == results[1]["history"]
    assert (out / "kept" / "checkpoint-30" / "trainer_state.json").exists()
    printed = [line for line in run.lines if "'eval_odd'" in line]
    assert len(printed) == 3  # by rank 0 alone
