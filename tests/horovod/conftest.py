"""Real runs of scripts that import horovod, as Midflight starts them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.shims import PYTHON
from tests.e2e.runs import Run

SCRIPTS = Path(__file__).with_name("scripts")


class Horovod:
    """Starts scripts of this folder."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run(self, script: str, *arguments: str, np: int = 2, flags: tuple[str, ...] = ()) -> Run:
        command = ["python", str(SCRIPTS / script), *arguments]
        made = Run(self._home, *flags, script=command, np=np)
        paths = [PYTHON, made.env.get("PYTHONPATH", "")]
        made.env |= {"PYTHONPATH": ":".join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        return made


@pytest.fixture
def horovod(tmp_path: Path) -> Iterator[Horovod]:
    yield Horovod(tmp_path)
