"""What is done to every framework's script: it grows, its rank 0 dies, and the next one leaves.

Then it is compared with the same script in a process of its own, which nobody disturbed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.runs import PATIENCE, Run, by_rank, kill, ranked

FLAGS = ("--min-np", "1", "--max-np", "4", "--cooldown", "60", "60")


def endure(home: Path, program: Path) -> tuple[Run, list[dict[str, Any]]]:
    """Run it through all changes to its end; the run, and what the last members came to."""
    with Run(home, *FLAGS, script=["python", str(program), str(home / "out")], np=2) as run:
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
    assert sorted(result["first"] for result in results) == [False, True]
    return run, results


def check_audit(run: Run) -> None:
    audit = run.command("audit", "job")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "every sample was used exactly once" in audit.stdout


def alone(folder: Path, program: Path, *options: str) -> dict[str, Any]:
    """What the script comes to in a process of its own."""
    folder.mkdir()
    (folder / "hurry").touch()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")}
    done = subprocess.run(
        [sys.executable, str(program), str(folder), *options],
        env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "m0.json").read_text())
    return result


def steps_printed(run: Run) -> list[int]:
    """By whoever was rank 0: their numbers."""
    lines = [line.partition(">:")[2] for line in run.lines if " of a world of " in line]
    return [int(line.split()[1]) for line in lines]
