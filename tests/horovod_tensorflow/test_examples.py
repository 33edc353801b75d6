"""The examples with Keras and TensorFlow, each on its own: a world of one."""

import re
import sys
from pathlib import Path

import pytest

from tests.horovod_tensorflow import programs
from tests.run.site import Launched, Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), programs.needs_tensorflow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def alone(site: Site, name: str, *arguments: str) -> Launched:
    command = [sys.executable, str(EXAMPLES / name / "train.py"), *arguments]
    return Launched(command, site.env, site.folder)


def test_the_examples_run_alone_and_learn_something(site: Site) -> None:
    programs.prepare(site)
    loop = alone(site, "13-horovod-tensorflow-mnist", "--steps", "120")
    fit = alone(site, "12-horovod-keras-mnist", "--epochs", "2", "--samples", "1600")
    assert loop.ends(programs.PATIENCE) == 0, loop.lines
    assert fit.ends(programs.PATIENCE) == 0, fit.lines
    steps = [line for line in loop.lines if re.fullmatch(r"Step #\d+\tLoss: \d+\.\d{6}", line)]
    assert len(steps) == 12
    for run in (loop, fit):
        found = [float(n) for line in run.lines for n in re.findall(r"accuracy ([\d.]+)%", line)]
        assert found[-1] > 60, run.lines
