"""Guide 2 with a script of its own kind: digits with TensorFlow and Elastic Horovod, in a job."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.guides.terminal import Terminal
from tests.guides.test_guide_2 import JOB, SUBMIT, speakers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        find_spec("tensorflow") is None, reason="TensorFlow is missing; `make test` installs it"
    ),
]

SCRIPT = Path(__file__).resolve().parents[2] / "examples/13-horovod-tensorflow-mnist/train.py"


def test_guide_2_with_the_horovod_api(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    shutil.copy(SCRIPT, tmp_path / "elastic" / "mnist_elastic.py")
    endless = SUBMIT.replace("mnist_elastic.py", "mnist_elastic.py --steps 1000000000")
    logs = f"arena logs {JOB} --tail 30"
    with Terminal(tmp_path) as terminal:
        terminal.types(endless.replace("EXAMPLES", str(tmp_path)))
        terminal.until(logs, lambda out: speakers(out) == {0, 1})
        terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=10m')
        terminal.until(logs, lambda out: speakers(out) == {0, 1, 2})
        terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=10m')
        terminal.until(logs, lambda out: speakers(out) == {0, 1})
        told = terminal.types(f"arena logs {JOB}").out
        steps = [int(n) for n in re.findall(r"^\[0\]<stdout>:Step #(\d+)\tLoss", told, re.M)]
        assert steps == list(range(10, 10 * len(steps) + 1, 10)), "none was lost or done twice"
        terminal.types(f"arena delete {JOB}")
