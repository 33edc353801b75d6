"""Newcomers that receive a state while all train: nobody stands still, and nothing else differs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import PATIENCE, STEPS, Run, by_rank, kill, ranked

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parent / "scripts" / "shadow.py"
FLAGS = ("--min-np", "1", "--max-np", "4", "--cooldown", "1", "2")


GPU = pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="there is no GPU here")


def started(home: Path, *options: str) -> Run:
    (home / "out").mkdir(parents=True)
    (home / "out" / "hold").touch()
    script = ["python", str(SCRIPT), "--out", str(home / "out"), *options]
    return Run(home, *FLAGS, script=script, np=2, warm=int("cuda" not in options))


def await_stream(run: Run) -> dict[str, Any]:
    """A newcomer is in the world, waits for the state, and steps are completed all the same."""
    held = run.out / "held-recv"
    run.await_status(lambda _: held.exists())
    held.unlink()
    before = run.status()["step"]
    return run.await_status(lambda s: s["phase"] == "switching" and s["step"] > before + 3)


def newcomer(status: dict[str, Any]) -> dict[str, Any]:
    return next(member for member in status["members"] if member["rank"] is None)


def ledgers(run: Run) -> dict[str, list[dict[str, Any]]]:
    return {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in run.folder.ledgers.glob("*.jsonl")
    }


def finished(run: Run) -> int:
    """The end a whole epoch from now, before the same step on all members; the exit code."""
    beside = run.out / "hurry.new"
    beside.write_text(str(run.status()["step"] // STEPS + 2))
    beside.rename(run.out / "hurry")
    return run.wait()


def check_end(run: Run) -> dict[str, Any]:
    """The same bits on all members, every sample once, and nobody left over."""
    states = [json.loads(path.read_text()) for path in run.out.glob("state-*.json")]
    assert len(states) > 1
    assert all(state == states[0] for state in states)
    audit = run.command("audit", "job")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert run.left_over() == []
    return states[0]


@pytest.mark.parametrize(
    "options",
    [
        ("--device", "cpu"),
        pytest.param(("--device", "cuda"), marks=GPU),
        pytest.param(("--device", "cuda", "--backend", "nccl"), marks=GPU),
    ],
)
def test_the_others_train_on_while_a_newcomer_receives_the_state(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with started(tmp_path, *options) as run:
        run.await_stable(2, beyond=3)
        request = run.begin_resize("--to", "3")
        await_stream(run)
        assert request.poll() is None, "a newcomer without the state does not count yet"
        (run.out / "go").touch()
        assert request.wait(PATIENCE) == 0
        assert run.await_stable(3)["resets"] == 0
        assert run.resize("--to", "2").returncode == 0
        assert "newcomers receive" not in run.output, "there are none"
        assert run.resize("--to", "3").returncode == 0
        assert finished(run) == 0
        steps = [line for line in ledgers(run)["m0"] if "step" in line]
        shadowed = [line for line in steps if line.get("sharers") == 2]
        assert len(shadowed) > 3
        assert {line["size"] for line in shadowed} == {3}
        assert steps[-1]["size"] == 3
        assert "sharers" not in steps[-1]
        sources = [line["source"] for line in ledgers(run)["m2"] if "compared" in line]
        assert sources == ["m0", ""], "at its first share it has the state of its own accord"
        state = check_end(run)
    alone = trained_alone(tmp_path / "alone", state["epochs"], *options)
    assert (alone["step"], alone["rate"]) == (state["step"], state["rate"])
    assert alone["weights"] == pytest.approx(state["weights"], abs=1e-9)


def trained_alone(home: Path, epochs: int, *options: str) -> dict[str, Any]:
    home.mkdir()
    (home / "hurry").write_text(str(epochs))
    env = {k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")}
    command = [sys.executable, str(SCRIPT), "--out", str(home), *options]
    subprocess.run(command, env=env, timeout=PATIENCE, check=True)
    state: dict[str, Any] = json.loads((home / "state-alone.json").read_text())
    return state


def test_deaths_in_a_shadow_cost_a_step_and_no_torn_state_survives(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.await_stable(2, beyond=3)
        request = run.begin_resize("--to", "3")
        kill(newcomer(await_stream(run)))
        run.await_status(lambda s: s["resets"] == 1 and len(ranked(s)) >= 2)
        kill(by_rank(await_stream(run), 0))  # another newcomer has come, and loses its giver
        run.await_status(lambda s: s["resets"] == 2 and len(ranked(s)) >= 2)
        (run.out / "go").touch()
        assert run.await_stable(3)["resets"] == 2
        request.communicate(timeout=PATIENCE)
        assert finished(run) == 0
        check_end(run)
