"""Hugging Face's Trainer, of the pinned version, through changes of the world."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import PATIENCE, Run, by_rank, kill, ranked

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("scripts") / "hugging_face.py"
FLAGS = ("--min-np", "1", "--max-np", "4", "--cooldown", "60", "60")
SERIES = ("losses", "norms", "rates", "evaluated", "weights")
ROUNDING = 1e-4  # of single precision, through 160 steps of Adam


def script(out: Path, *options: str) -> list[str]:
    return ["python", str(SCRIPT), str(out), *options]


def alone(folder: Path, *options: str, program: Path = SCRIPT) -> dict[str, Any]:
    """What the script comes to in a process of its own."""
    folder.mkdir()
    (folder / "hurry").touch()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")}
    done = subprocess.run(
        [sys.executable, str(program), str(folder), *options],
        env={**environment, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "m0.json").read_text())
    return result


def check_same(result: dict[str, Any], undisturbed: dict[str, Any]) -> None:
    assert (result["step"], result["epoch"]) == (undisturbed["step"], undisturbed["epoch"])
    for name in SERIES:
        assert result[name] == pytest.approx(undisturbed[name], rel=ROUNDING, abs=ROUNDING), name


def check_audit(run: Run) -> None:
    audit = run.command("audit", "job")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "every sample was used exactly once" in audit.stdout


def test_a_trainer_goes_on_through_every_change_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    with Run(tmp_path / "run", *FLAGS, script=script(tmp_path / "run" / "out"), np=2) as run:
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
        check_audit(run)
        results = run.results()
        assert run.left_over() == []
    assert len(results) == 2
    assert sorted(result["first"] for result in results) == [False, True]
    undisturbed = alone(tmp_path / "alone")
    for result in results:
        check_same(result, undisturbed)
