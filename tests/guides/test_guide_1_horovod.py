"""Guide 1 with a script of its own kind: Elastic Horovod's API, under horovodrun, in a job."""

import re
import shutil
from pathlib import Path

import pytest

from tests.guides.terminal import Terminal
from tests.guides.test_guide_1 import JOB, SUBMIT, iterations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SCRIPT = Path(__file__).resolve().parents[2] / "examples/09-horovod-synthetic/train.py"
LATE = 30  # iterations that are far enough behind a change to be its result


def test_guide_1_with_the_horovod_api(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    script = tmp_path / "elastic" / "pytorch_synthetic_benchmark_elastic.py"
    shutil.copy(SCRIPT, script)
    submit = SUBMIT.replace("EXAMPLES", str(tmp_path)).replace("10000", "1000000")
    with Terminal(tmp_path) as terminal:
        terminal.types(submit)
        logs = f"arena logs {JOB} --tail 10"
        first = iterations(terminal.until(logs, lambda out: len(iterations(out)) >= 3))

        terminal.types(f'arena scaleout etjob --name="{JOB}" --count=1 --timeout=1m')
        terminal.until(f"arena get {JOB}", lambda out: re.search(r"scaleout +3 +4 +succeeded", out))
        later = first[-1] + LATE
        second = iterations(
            terminal.until(logs, lambda out: iterations(out) and iterations(out)[-1] > later)
        )

        terminal.types(f'arena scalein etjob --name="{JOB}" --count=1 --timeout=1m')
        terminal.until(f"arena get {JOB}", lambda out: re.search(r"scalein +4 +3 +succeeded", out))
        later = second[-1] + LATE
        terminal.until(logs, lambda out: iterations(out) and iterations(out)[-1] > later)

        # All three sizes were trained with, and no iteration was lost or done twice on the way.
        told = terminal.types(f"arena logs {JOB}").out
        sizes = re.findall(r"^\[0\]<stdout>:Number of workers: (\d)$", told, re.M)
        assert sizes == ["3", "4", "3"]
        every = iterations(told)
        gap = next((n for n, number in enumerate(every) if n != number), len(every))
        assert gap == len(every), told.partition(f"Iter #{gap - 2}:")[2][:4000]
        assert re.search(r"^INFO:root:resized from 3 to 4 members", told, re.M)
        terminal.types(f"arena delete {JOB}")
