"""Jobs that grow and lose members: no step is lost, none comes twice, all replicas stay equal."""

import os
import re
import signal
from collections import defaultdict

import pytest

from tests.horovod_tensorflow import programs
from tests.run.site import Launched, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), programs.needs_tensorflow]

WITHIN = programs.PATIENCE


def members(site: Site, program: str) -> list[int]:
    return [pid for pid, words in site.processes(program).items() if words[1] == program]


def grow(site: Site, size: int) -> None:
    """A newcomer that imports TensorFlow may take its time."""
    words = ("resize", "digits", "--to", str(size), "--timeout", f"{WITHIN:.0f}", "--no-wait")
    done = site.command(*words)
    assert done.returncode == 0, done.stderr


def told(run: Launched) -> dict[int, list[dict[str, str]]]:
    """What was said about each step, by whoever took part in it."""
    found = defaultdict(list)
    for line in run.lines:
        values = dict(re.findall(r"(\w+)=(\S+)", line)) if "taken=" in line else {}
        if values:
            found[int(values["taken"])].append(values)
    return found


def all_agree(steps: dict[int, list[dict[str, str]]]) -> None:
    assert sorted(steps) == list(range(1, max(steps) + 1)), "no step was lost"
    for step, said in steps.items():
        assert len({tuple(sorted(values.items())) for values in said}) == 1, (step, said)
        assert len(said) <= int(said[0]["size"]), "nobody did it twice"


@pytest.mark.parametrize("keras", programs.AGES)
def test_a_loop_with_a_tape_grows_and_loses_its_first_rank(site: Site, keras: str) -> None:
    program = programs.HERE / "elastic_tape.py"
    run = programs.start(site, program, "-np", "2", "--min-np", "1", "--max-np", "3", keras=keras)
    run.says("size=2", times=20, within=WITHIN)
    first = min(members(site, str(program)))
    grow(site, 3)
    run.says("size=3", times=30, within=WITHIN)
    os.kill(first, signal.SIGKILL)
    before = sum("size=2" in line for line in run.lines)
    run.says("size=2", times=before + 20, within=WITHIN)
    assert not any("Traceback" in line for line in run.lines)
    run.send(signal.SIGINT)
    assert run.ends() == 130
    steps = told(run)
    all_agree(steps)
    assert all(values["step"] == str(step) for step, said in steps.items() for values in said)
    assert sum("now 3" in line for line in run.lines) == 3


@pytest.mark.parametrize("keras", programs.AGES)
def test_a_fit_grows_in_the_middle_of_an_epoch_loses_a_rank_and_comes_to_its_end(
    site: Site, keras: str
) -> None:
    program = programs.HERE / "elastic_fit.py"
    run = programs.start(site, program, "-np", "1", "--min-np", "1", "--max-np", "2", keras=keras)
    run.says("size=1", times=10, within=WITHIN)
    grow(site, 2)
    run.says("size=2", times=31, within=WITHIN)
    os.kill(max(members(site, str(program))), signal.SIGKILL)
    before = sum("size=1" in line for line in run.lines)
    run.says("size=1", times=before + 5, within=WITHIN)
    (site.folder / "enough").touch()
    assert run.ends(WITHIN) == 0, run.lines[-30:]
    steps = told(run)
    all_agree(steps)
    assert len(steps) % 10 == 0, "whole epochs of ten batches"
    for step, said in steps.items():
        whole, part = divmod(step - 1, 10)
        assert (said[0]["epoch"], said[0]["batch"]) == (str(whole), str(part + 1))
    assert {said[0]["size"] for said in steps.values()} == {"1", "2"}
    run.says(f"done: {len(steps) // 10} epochs")


@pytest.mark.parametrize("keras", programs.AGES)
def test_a_loss_between_the_last_batch_and_the_end_of_an_epoch_adds_no_batch(
    site: Site, keras: str
) -> None:
    run = programs.start(site, programs.HERE / "broken_epoch_end.py", "-np", "1", keras=keras)
    assert run.ends(WITHIN) == 0, run.lines[-30:]
    begun = [line.split("begins ")[1] for line in run.lines if "begins " in line]
    assert begun == ["epoch=0 batch=0", "epoch=2 batch=0"]
    run.says("done: 4 epochs of 20 batches")
