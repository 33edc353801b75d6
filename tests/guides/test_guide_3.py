"""Guide 3, command by command: a pytorchjob whose code comes from git."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.guides.scripts import DISTRIBUTED
from tests.guides.terminal import Terminal, table_under

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

JOB = "pytorch-dist-git"


def repository(folder: Path) -> str:
    """A git repository with the training script in it, reached by a URL."""
    folder.mkdir()
    (folder / "mnist.py").write_text(DISTRIBUTED)
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    return f"file://{folder}"


def test_guide_3(tmp_path: Path) -> None:
    source = repository(tmp_path / "mnist-pytorch.git")
    root = tmp_path / "root"
    root.mkdir()
    with Terminal(tmp_path) as terminal:
        terminal.types("midflight up --nodes 3 --gpus-per-node 4")

        # 1. The available resources.
        top = terminal.types("arena top node").out
        rows = table_under("NAME", top)
        assert [row["GPU(Total)"] for row in rows] == ["4", "4", "4"]
        assert [row["STATUS"] for row in rows] == ["ready"] * 3
        assert top.endswith("Allocated/Total GPUs In Cluster:\n0/12 (0%)\n")

        # 2. Submit, with the home folder in the place of the guide's.
        said = terminal.types(
            f"arena --loglevel info submit pytorch --name={JOB} --gpus=1 --workers=2 "
            "--image=registry.example/pytorch:1.5.1 --sync-mode=git "
            f"--sync-source={source} --workingDir={root} "
            f'"python {root}/code/mnist-pytorch/mnist.py --backend gloo"'
        )
        assert said.lines == [f"pytorchjob.kubeflow.org/{JOB} created"]
        assert "Flag --workingDir has been deprecated, please use --working-dir instead" in said.err
        assert (
            f"You can run `arena get {JOB} --type pytorchjob` to check the job status" in said.err
        )

        # 3. List.
        listed = terminal.until("arena list", lambda out: "SUCCEEDED" in out or "FAILED" in out)
        assert re.search(rf"^{JOB} +SUCCEEDED +PYTORCHJOB ", listed, re.M)

        # 4. Get: the master is one of the two.
        shown = terminal.types(f"arena get {JOB} --type pytorchjob").out
        assert {row["NAME"]: row["STATUS"] for row in table_under("NAME", shown)} == {
            f"{JOB}-master-0": "Completed",
            f"{JOB}-worker-0": "Completed",
        }

        # 5. Logs: of rank 0 by default, of any instance by name, and only the end of it.
        logs = terminal.types(f"arena logs {JOB}").out
        assert "WORLD_SIZE: 2, CURRENT_RANK: 0" in logs
        assert "Using distributed PyTorch with gloo backend" in logs
        assert re.search(r"Train Epoch: 1 \[0/1000 \(0%\)\]\tloss=\d", logs)
        other = terminal.types(f"arena logs {JOB} -i {JOB}-worker-0").out
        assert "WORLD_SIZE: 2, CURRENT_RANK: 1" in other
        last = terminal.types(f"arena logs {JOB} -i {JOB}-worker-0 -t 3").out
        assert re.fullmatch(r"\naccuracy=[01]\.\d+\n\n", last)

        # The code is the job's, and goes with it.
        assert (root / "code" / "mnist-pytorch" / "mnist.py").exists()
        terminal.types(f"arena delete {JOB}")
        assert not (root / "code" / "mnist-pytorch").exists()
        assert terminal.types("arena top node").out.endswith("0/12 (0%)\n")
