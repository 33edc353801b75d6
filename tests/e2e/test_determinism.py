"""Deterministic mode: the weights of a run that was resized and lost a member are those of one
that never was, bit for bit."""

from pathlib import Path

import pytest

from tests.e2e.runs import Run, by_rank, kill, ranked

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "scripts" / "exact.py"


def hashes(run: Run) -> set[str]:
    return {path.read_text() for path in run.out.glob("hash-*")}


def test_resizes_and_a_death_change_no_bit(tmp_path: Path) -> None:
    flags = ("--min-np", "1", "--max-np", "4", "--cooldown", "1", "5")
    still, moved = tmp_path / "still", tmp_path / "moved"
    command = ["python", str(SCRIPT), "--out"]
    with Run(still, *flags, script=[*command, str(still / "out")], np=2) as run:
        assert run.finish() == 0
        expected = hashes(run)
    assert len(expected) == 1
    with Run(moved, *flags, script=[*command, str(moved / "out")], np=1) as run:
        run.await_stable(1, beyond=3)
        assert run.resize("--to", "3").returncode == 0
        status = run.await_stable(3)
        kill(by_rank(status, 0))
        run.await_status(lambda s: s["resets"] == 1 and len(ranked(s)) >= 2)
        run.progress()
        assert run.finish() == 0
        assert hashes(run) == expected
