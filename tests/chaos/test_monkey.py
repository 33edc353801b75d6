"""The monkey on real trainings: a run in deterministic mode, and a job of the local server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.chaos.choice import ACTIONS
from tests.cluster.home import Home
from tests.e2e.runs import Run, coordinator_of
from tests.guides.scripts import MNIST_LIKE
from tests.run.site import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
SCRIPT = Path(__file__).parents[1] / "e2e" / "scripts" / "exact.py"
FLAGS = ("--max-np", "4", "--cooldown", "0.5", "2")
STORM, JOB_STORM = "100s", "20s"  # two minutes in all
LENGTH = ("--epochs", "200", "--pace", "0.1")  # longer than that


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where the right to mount is missing, a folder: then `fill-disk` says that it cannot."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    mounted = subprocess.run(words, capture_output=True).returncode == 0
    yield folder
    if mounted:
        subprocess.run(["umount", "-l", folder], check=True)


def exact(home: Path, np: int, *flags: str) -> Run:
    command = ["python", str(SCRIPT), *LENGTH, "--out", str(home / "out")]
    return Run(home, *FLAGS, *flags, script=command, np=np)


def digests(run: Run) -> set[str]:
    return {path.read_text() for path in run.out.glob("hash-*")}


def stopped(run: Run) -> list[int]:
    return [pid for pid in run.left_over() if state(pid) == "T"]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_training_that_was_struck_again_and_again_ends_with_the_same_bits(
    tmp_path: Path, small_disk: Path
) -> None:
    with exact(tmp_path / "still", 1) as run:
        run.hurry()
        assert run.wait() == 0
        expected = digests(run)
    assert len(expected) == 1
    # Down to two, of which one may always be killed; a lone one never is.
    with exact(small_disk / "struck", 3, "--min-np", "2", "-H", "localhost:4") as run:
        run.await_stable(3, beyond=3)
        interrupt_while_it_pauses_the_coordinator(run)
        words = ["--seed", "11", "--for", STORM, "--rest", "0.3s", "--patience", "60s"]
        done = run.command("chaos", "monkey", "job", *words, "-o", "json", timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert (report["broke"], report["audit"]["ok"]) == ("", True)
        possible = {*ACTIONS} - {*report["impossible"]}
        assert {strike["action"] for strike in report["strikes"]} == possible, done.stderr
        cuts = {bool(strike["peer"]) for strike in report["strikes"] if strike["action"] == "cut"}
        assert "cut" not in possible or cuts == {True, False}, done.stderr
        assert stopped(run) == []
        assert run.finish() == 0
        assert digests(run) == expected
        assert run.command("audit", "job").returncode == 0


def interrupt_while_it_pauses_the_coordinator(run: Run) -> None:
    """Ctrl-C at the worst moment: what was done so far is told, and nobody stays stopped."""
    words = ["chaos", "monkey", "job", "--actions", "pause-coordinator", "--rest", "0s"]
    coordinator = coordinator_of(run)
    with subprocess.Popen(
        [sys.executable, "-m", "midflight.cli.main", *words],
        env=run.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as monkey:
        eventually(lambda: state(coordinator) == "T", within=60)
        monkey.send_signal(signal.SIGINT)
        out, err = monkey.communicate(timeout=60)
    assert monkey.returncode == 130, err
    assert state(coordinator) != "T"
    assert "every sample was used exactly once" in out


def test_a_job_of_the_server_is_struck_and_resized(tmp_path: Path) -> None:
    with Home(tmp_path) as home:
        (tmp_path / "train.py").write_text(MNIST_LIKE)
        flags = "--workers 2 --min-workers 1 --max-workers 3"
        home.types(f"midflight submit et --name struck {flags} 'python train.py'")
        home.until("midflight status struck", lambda shown: "phase:      stable" in shown)
        words = f"--seed 2 --for {JOB_STORM} --rest 0.3s --actions kill,cut,resize"
        done = home.types(f"midflight chaos monkey struck {words}")
        assert "striking the job struck in namespace default" in done.err
        assert "every sample was used exactly once" in done.out
        assert "training continued after each of" in done.out
