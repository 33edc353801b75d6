"""horovod.torch on real ranks: every collective, the optimizer, and what a wrong call says."""

from pathlib import Path

import pytest

from tests.horovod.conftest import Horovod

pytestmark = pytest.mark.slow


def _holds(horovod: Horovod, script: str, np: int, *arguments: str) -> list[str]:
    with horovod.run(script, *arguments, np=np) as run:
        code = run.wait()
        assert code == 0, run.output
        assert run.left_over() == []
        return run.lines


def test_every_collective_gives_what_horovod_gives(horovod: Horovod) -> None:
    lines = _holds(horovod, "collectives.py", 3)
    parts = ("reductions", "names", "wrong", "gathering", "gradients", "some", "batch_norm")
    for part in parts:
        assert sum(f"{part} holds" in line for line in lines) == 3, part
    assert sum("missing names are named" in line for line in lines) == 3


def test_every_operation_takes_every_type_of_numbers_and_one_to_three_dimensions(
    horovod: Horovod,
) -> None:
    lines = _holds(horovod, "matrix.py", 3)
    parts = ("reductions", "truths", "scattered", "gathered", "broadcasts", "exchanged", "refused")
    for part in parts:
        assert sum(f"{part} holds" in line for line in lines) == 3, part


def test_the_distributed_optimizer_equals_one_process_with_the_whole_batch(
    horovod: Horovod, tmp_path: Path
) -> None:
    lines = _holds(horovod, "optimizers.py", 2, str(tmp_path))
    for part in (
        "options",
        "clipping",
        "joining",
        "unused",
        "sparse",
        "sets",
        "checks",
        "states",
        "adasum",
        "timeline",
    ):
        assert sum(f"{part} holds" in line for line in lines) == 2, part
