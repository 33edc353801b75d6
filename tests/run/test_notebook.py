"""`mf.launch`: how a function comes into the members' processes."""

import os
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import pytest

import midflight as mf
from midflight.errors import JobFailed, UsageError
from midflight.notebook import program

PATIENCE = 100.0

# What IPython does: cells are compiled under the names of files that only linecache knows, and
# __main__ has none.
NOTEBOOK = '''
import linecache, sys
import midflight.notebook as notebook

CELLS = [
"""
import math
import math as maths
from collections import OrderedDict
WIDTH = 3
SIZES = {"deep": [1, 2]}
data = object()
""",
"""
class Model:
    width = WIDTH

    def area(self):
        return self.width * maths.ceil(1.5)

def shown(text):
    print("area", text, *SIZES["deep"], OrderedDict(a=1)["a"])

@staticmethod
def unused(): ...

def train():
    shown(Model().area())

def broken():
    return data
""",
]
for number, cell in enumerate(CELLS):
    name = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[name] = len(cell), None, cell.splitlines(True), name
    exec(compile(cell, name, "exec"))
print(notebook.program(eval(sys.argv[1])))
'''


def in_a_notebook(name: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-c", NOTEBOOK, name]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_notebook_s_function_comes_with_all_that_it_uses() -> None:
    written = in_a_notebook("train")
    assert written.returncode == 0, written.stderr
    assert "unused" not in written.stdout
    done = subprocess.run(
        [sys.executable, "-"], input=written.stdout,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("area 6 1 2 1\n", "")


def test_what_cannot_be_written_out_is_named() -> None:
    assert "the function uses data, a object of this notebook" in in_a_notebook("broken").stderr


def test_only_a_function_that_others_can_find_is_taken() -> None:
    assert "from tempfile import gettempdir\n" in program(tempfile.gettempdir)
    for wrong in (lambda: None, OrderedDict, 7):
        with pytest.raises(UsageError, match="wanted a function"):
            program(wrong)  # type: ignore[arg-type]


def test_a_member_does_not_launch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDFLIGHT_MEMBER", "m0")
    with pytest.raises(UsageError, match="under `if __name__"):
        mf.launch(tempfile.gettempdir)
    monkeypatch.delenv("MIDFLIGHT_MEMBER")
    with pytest.raises(UsageError, match="1 worker or more"):
        mf.launch(tempfile.gettempdir, workers=0)


SCRIPT = """
import torch
import midflight as mf

def train():
    data = [{"x": torch.full((2,), float(i)), "scale": torch.tensor(2.0)} for i in range(12)]
    class Model(torch.nn.Linear):
        def forward(self, x, scale):
            return super().forward(x) * scale[:, None]
    model = Model(2, 1)
    with mf.join(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0)) as job:
        for batch in job.batches(data, global_batch_size=4, epochs=1, plan={"shuffle": False}):
            if job.step(model(**batch).mean()):
                job.log(mean=batch["x"].mean(), samples=len(batch.indices), note="as rank 0 has it")

if __name__ == "__main__":
    mf.launch(train, 2)
"""


@pytest.mark.slow
def test_a_script_launches_its_own_function_as_a_job(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    env = {**os.environ, "MIDFLIGHT_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, str(path)], env=env,
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 1 epoch 0 size 2 mean 0.5 samples 2 note as rank 0 has it" in done.stdout


def test_a_job_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from midflight import notebook

    monkeypatch.setattr(notebook, "_run", lambda _: 3)
    with pytest.raises(JobFailed, match=r"of gettempdir\(\) ended with exit code 3"):
        mf.launch(tempfile.gettempdir)
