"""Elastic jobs on the real server: growing with the room there is, rolling back, a pytorchjob."""

import re
from pathlib import Path

import pytest

from tests.guides.scripts import MNIST_LIKE
from tests.guides.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def members(terminal: Terminal, job: str) -> int:
    """With how many members the job trains; 0 while it does not."""
    status = terminal.types(f"midflight status {job}", code=None).out
    found = re.search(r"^members: +(\d+) of", status, re.M)
    return int(found[1]) if found and re.search(r"^phase: +stable$", status, re.M) else 0


def until_training(terminal: Terminal, job: str, size: int) -> None:
    terminal.until(f"midflight status {job}", lambda _: members(terminal, job) == size)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(MNIST_LIKE)
    return path


def test_a_job_starts_with_its_minimum_and_grows_when_there_is_room(
    tmp_path: Path, script: Path
) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.types("midflight up --nodes 1 --gpus-per-node 2")
        terminal.types("midflight submit pytorch --name hog --gpus 1 'sleep 1000'")
        terminal.types("midflight wait hog --for running")
        terminal.types("midflight submit et --name grows --gpus 1 --workers 2 'python train.py'")
        until_training(terminal, "grows", 1)  # long before any start timeout
        shown = terminal.types("midflight get grows").out
        assert re.search(r"^Status: +RUNNING$", shown, re.M)
        assert "grows-worker-1 waits: 0/1 nodes have 1 free GPU" in shown
        terminal.types("midflight delete hog")
        until_training(terminal, "grows", 2)
        assert "exactly once" in terminal.types("midflight audit grows").out


def test_a_scaleout_that_is_too_late_is_taken_back_and_nobody_has_noticed(
    tmp_path: Path, script: Path
) -> None:
    slow = "import os, time\nif os.environ['MIDFLIGHT_JOINER'] == '1':\n    time.sleep(600)\n"
    script.write_text(slow + MNIST_LIKE)
    with Terminal(tmp_path) as terminal:
        terminal.types("midflight submit et --name late --workers 2 'python train.py'")
        until_training(terminal, "late", 2)
        before = terminal.types("midflight status late").out
        said = terminal.types(
            "midflight scaleout et --name late --count 1 --timeout 3s --wait", code=1
        )
        assert "error" in said.err
        shown = terminal.types("midflight get late").out
        assert re.search(r"scaleout +2 +3 +failed", shown)
        assert re.search(r"^Workers: +2 ", shown, re.M)
        assert "late-worker-2" not in shown.partition("Scale operations")[0]
        until_training(terminal, "late", 2)
        after = terminal.types("midflight status late").out
        assert re.findall(r"^m\d .*", before, re.M)[0].split()[:4] in [
            line.split()[:4] for line in re.findall(r"^m\d .*", after, re.M)
        ]
        assert re.search(r"^resets: +0$", after, re.M)
        # The next one may still succeed: the newest leaves, and the job is what it was.
        terminal.types("midflight scalein et --name late --count 1 --wait")
        until_training(terminal, "late", 1)


def test_a_pytorchjob_can_be_elastic(tmp_path: Path, script: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.types(
            "midflight submit pytorchjob --name pt --workers 2 --min-workers 1 --max-workers 4 "
            "'python train.py'"
        )
        until_training(terminal, "pt", 2)
        terminal.types("midflight resize pt --to 3")
        assert members(terminal, "pt") == 3
        hosts = set(re.findall(r"pt-\w+-\d", terminal.types("midflight status pt").out))
        assert hosts == {"pt-master-0", "pt-worker-0", "pt-worker-1"}
        terminal.types("midflight chaos cut pt pt-worker-0")
        until_training(terminal, "pt", 3)
        terminal.types("midflight resize pt --to 1")
        until_training(terminal, "pt", 1)
        assert "exactly once" in terminal.types("midflight audit pt").out
