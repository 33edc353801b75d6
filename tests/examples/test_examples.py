"""Every example runs: alone where it can, and as an elastic job of two."""

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.demo import pauses
from tests.guides.terminal import Terminal
from tests.run.site import Launched, Site

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 100.0  # seconds; torch takes its time on a loaded machine


def needs(package: str) -> pytest.MarkDecorator:
    reason = f"{package} is not installed; `make test` does"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


WITH_BATCHES = (
    *("01-ten-lines", "02-own-epoch-loop", "03-own-dataloader"),
    pytest.param("15-lightning-fabric", marks=needs("lightning")),
    pytest.param("16-accelerate", marks=needs("accelerate")),
)
LONGEST = 100


def script(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, str(EXAMPLES / name / "train.py"), *arguments)


def alone(name: str, *arguments: str) -> str:
    done = subprocess.run(
        script(name, *arguments), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def together(site: Site, *command: str, flags: tuple[str, ...] = ("-np", "2")) -> Launched:
    return site.launch("--name", "example", *flags, "--", *command)


def epochs_shown(lines: str) -> list[tuple[int, int]]:
    """The epochs that were evaluated, and after which step."""
    found = re.findall(r"epoch (\d+), step (\d+): accuracy", lines)
    return [(int(epoch), int(step)) for epoch, step in found]


def test_no_example_has_more_than_100_lines() -> None:
    scripts = sorted([*EXAMPLES.glob("[0-9]*/*.py"), *EXAMPLES.glob("[0-9]*/*.sh")])
    assert len(scripts) >= 6  # the pattern still finds them
    assert all(len(path.read_text().splitlines()) <= LONGEST for path in scripts)
    assert all((path.parent / "README.md").exists() for path in scripts)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_BATCHES)
def test_an_example_runs_alone(name: str) -> None:
    assert alone(name)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", WITH_BATCHES)
def test_an_example_runs_as_a_job_of_two(name: str, site: Site) -> None:
    run = together(site, *script(name))
    assert run.ends(PATIENCE) == 0, run.lines
    audit = site.command("audit", "example")
    assert audit.returncode == 0, audit.stdout
    plot = site.command("plot", "example", "-o", "-")
    assert plot.returncode == 0, plot.stderr
    assert ">samples/s</text>" in plot.stdout
    logs = "job.log(loss=" in Path(script(name)[1]).read_text()
    assert (">loss</text>" in plot.stdout) == logs
    report = site.command("report", "example", "-o", "-")
    assert report.returncode == 0, report.stderr
    assert report.stdout.startswith("<!DOCTYPE html>") and plot.stdout in report.stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_two_members_find_the_centres_that_one_finds(site: Site) -> None:
    run = together(site, *script("04-hand-written-loop"))
    assert run.ends(PATIENCE) == 0, run.lines
    figures = [line.partition(">:")[2] for line in run.lines if "mean distance" in line]
    assert figures == alone("04-hand-written-loop").splitlines()


@pytest.mark.slow
def test_a_checkpoint_at_the_end_of_an_epoch_is_gone_on_from(tmp_path: Path) -> None:
    keep = ("--checkpoint", str(tmp_path / "state.pt"))
    assert epochs_shown(alone("02-own-epoch-loop", "--epochs", "2", *keep)) == [(0, 20), (1, 40)]
    again = epochs_shown(alone("02-own-epoch-loop", "--epochs", "4", *keep))
    assert again[-2:] == [(2, 60), (3, 80)]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_plain_ddp_runs_to_its_end(site: Site, tmp_path: Path) -> None:
    run = together(site, *script("05-plain-ddp", "--checkpoint", str(tmp_path / "state.pt")))
    assert run.ends(PATIENCE) == 0, run.lines
    assert any("epoch 2" in line and "2 processes" in line for line in run.lines)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_plain_ddp_is_restarted_from_its_checkpoint_when_the_job_grows(
    site: Site, tmp_path: Path
) -> None:
    endless = ("--epochs", "1000000", "--checkpoint", str(tmp_path / "state.pt"))
    flags = ("-np", "1", "--min-np", "1", "--max-np", "2", "--start-timeout", "1")
    run = together(site, *script("05-plain-ddp", *endless), flags=flags)
    run.says("1 processes", within=PATIENCE)
    assert site.command("resize", "example", "--to", "2").returncode == 0
    run.says("2 processes", within=PATIENCE)
    epochs = [int(n) for line in run.lines for n in re.findall(r">:epoch (\d+):", line)]
    assert epochs == sorted(set(epochs)), "an epoch was done twice"
    run.send(signal.SIGINT)
    assert run.ends(PATIENCE) == 130


@needs("transformers")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_hugging_faces_trainer_ends_where_it_ends_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    name, losses = "14-hugging-face-trainer", r"'eval_loss': '([\d.]+)'"
    by_itself = re.findall(losses, alone(name, "--epochs", "2", "--out", str(tmp_path / "alone")))
    run = together(site, *script(name, "--epochs", "2", "--out", str(tmp_path / "kept")))
    assert run.ends(PATIENCE) == 0, run.lines
    assert site.command("audit", "example").returncode == 0
    found = [loss for line in run.lines for loss in re.findall(losses, line)]
    assert len(found) == 2
    assert [float(n) for n in found] == pytest.approx([float(n) for n in by_itself], rel=1e-3)
    assert (tmp_path / "kept" / "model.safetensors").exists()


# --- jobs of a server -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_06_a_job_file() -> None:
    with Terminal(EXAMPLES.parent) as terminal:
        job = "examples/06-a-job-file/job.yaml"
        assert "kind: etjob" in terminal.types(f"midflight submit -f {job} --dry-run").out
        terminal.types(f"midflight submit -f {job} --wait", within=PATIENCE)
        assert "epoch 7" in terminal.types("midflight logs from-a-file").out
        assert "exactly once" in terminal.types("midflight audit from-a-file").out


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_14_python_client() -> None:
    with Terminal(EXAMPLES.parent) as terminal:
        said = terminal.types(f"{sys.executable} examples/17-python-client/steer.py", within=200)
        assert "from 1 to 2: " in said.out
        assert len(epochs_shown(said.out)) == 3
        assert "steered-worker-1 Running" in said.out
        assert terminal.types("midflight list").lines == ["NAME  STATUS  TRAINER  AGE  NODE"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_07_simulated_nodes() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(EXAMPLES / "07-simulated-nodes" / "run.sh")],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every sample was used exactly once" in done.stdout


# --- the demo ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo_tells_its_story_and_leaves_a_picture_and_nothing_else(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "MIDFLIGHT_HOME"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo"), str(tmp_path / "flight.svg")],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every sample was used exactly once" in done.stdout
    assert done.stdout.rstrip().endswith("no process is left")
    drawn = (tmp_path / "flight.svg").read_text()
    assert ", left: resize" in drawn and ", lost: " in drawn and ">loss</text>" in drawn


def steps(*moments: float) -> list[pauses.Step]:
    return [pauses.Step(at, number, 0) for number, at in enumerate(moments)]


def test_a_pause_is_the_longest_gap_of_a_survivor_beyond_a_normal_step() -> None:
    logs = {"m0": steps(1, 2, 3, 4, 9, 10), "m1": steps(1, 2, 3), "m2": steps(8, 20)}
    pause = pauses.pause(logs, ["m0"], since=4.5, until=9.5)
    assert (pause.normal, pause.longest, pause.extra) == (1, 5, 4)


def test_without_steps_on_both_sides_there_is_no_pause() -> None:
    with pytest.raises(ValueError, match="before and after"):
        pauses.pause({"m0": steps(1, 2)}, ["m0"], since=5, until=6)


def test_the_last_newcomer_counts() -> None:
    logs = {"m0": steps(1, 9), "m1": steps(6), "m2": steps(7)}
    assert pauses.first_step(logs, since=5) == 2
    assert pauses.first_step(logs, since=8) is None


def test_a_half_written_line_of_a_step_log_is_left_out() -> None:
    assert pauses.parse("1.5 7 0\n1.7 8") == [pauses.Step(1.5, 7, 0)]
