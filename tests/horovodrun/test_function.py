"""`horovod.run`: a function in several processes, and what it gives back."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from midflight.compat.horovod.runner import function_files
from midflight.compat.horovod.runner.function import run
from midflight.errors import JobFailed, UsageError
from tests.horovodrun.shell import in_shell
from tests.run.site import Site

SCRIPT = """
import os, sys, warnings
import horovod

class Box:
    def __init__(self, value): self.value = value

def place(factor, add=0): return (int(os.environ["HOROVOD_RANK"]), 10 * factor + add)
def box(): return Box(os.environ["HOROVOD_SIZE"])
def fail(): sys.exit(5)

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("places", horovod.run(place, args=(4,), kwargs={"add": 2}, np=2))
    print("boxes", [b.value for b in horovod.run(box, num_proc=2, min_num_proc=1)])
    for hosts in ("localhost:2", "localhost:1"):
        try:
            horovod.run(fail, num_proc=2, hosts=hosts)
        except RuntimeError as error:
            print("error", str(error).splitlines()[-1])
"""


@pytest.mark.slow
def test_a_function_of_a_script_runs_in_every_process_and_gives_its_results_back(
    site: Site,
) -> None:
    (site.folder / "script.py").write_text(SCRIPT)
    done = in_shell(site, "python", "script.py")
    assert done.ends(60.0) == 0, done.lines
    told = [line for line in done.lines if line.split()[0] in ("places", "boxes", "error")]
    assert told == [
        "places [(0, 42), (1, 42)]",
        "boxes ['2']",
        "error Exit code: 5",
        "error Requested more processes (2) than there are available slots (1)",
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ([1, 2.5, "x", None, True, {"a": []}], True),
        ((1, 2), False),
        ({1: 2}, False),
        (math.inf, False),
        (b"x", False),
    ],
)
def test_values_come_back_as_the_very_same(tmp_path: Path, value: object, plain: bool) -> None:
    assert function_files.is_plain(value) == plain
    tmp_path.chmod(0o700)
    function_files.give_back(tmp_path, "m1", 1, value)
    function_files.give_back(tmp_path, "m0", 0, "first")
    found = function_files.collect(tmp_path)
    assert found == ["first", value] and type(found[1]) is type(value)
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize("func", [os.path.join, function_files.is_plain])
def test_a_function_that_can_be_imported_travels_by_its_name(
    tmp_path: Path, func: Callable[..., Any]
) -> None:
    tmp_path.chmod(0o700)
    function_files.ship(tmp_path, func, ("a", 1), {"b": 2})
    found, args, kwargs = function_files.receive(tmp_path)
    assert found is func
    assert (args, kwargs) == (["a", 1], {"b": 2})


def test_a_folder_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    function_files.ship(tmp_path, os.getcwd, (), None)
    tmp_path.chmod(0o777)
    with pytest.raises(JobFailed, match="others than this user may write"):
        function_files.receive(tmp_path)


def test_a_function_that_cannot_travel_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_cloudpickle(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", no_cloudpickle)
    with pytest.raises(UsageError, match="install cloudpickle"):
        function_files.ship(tmp_path, lambda: 1, (), None)


def test_arguments_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="hosts and hostfile only allow one"):
        run(os.getcwd, hosts="a:1", hostfile="f")
    with pytest.raises(ValueError, match="use_gloo and use_mpi only allow one"):
        run(os.getcwd, use_gloo=True, use_mpi=True)
