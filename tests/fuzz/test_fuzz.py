"""A share of the fuzzing in every run of the tests; `python -m tests.fuzz` goes on for longer."""

import contextlib
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import fuzz
from tests.fuzz.targets import TARGETS, choose, mutate, seeds

EXAMPLES = 60
MUTANTS = 300


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_a_reader(name: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(data=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
    def try_all(data: bytes) -> None:
        TARGETS[name](data)

    try_all()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_nearly_good_breaks_no_reader(name: str) -> None:
    chance = random.Random(zlib.crc32(name.encode()))
    good = seeds()
    for data in good:
        TARGETS[name](data)
    for _ in range(MUTANTS):
        TARGETS[name](choose(name, good, chance))


def test_an_input_that_takes_too_long_is_a_finding(tmp_path: Path) -> None:
    def hang(data: bytes) -> None:
        with contextlib.suppress(Exception):
            while True:
                pass

    found = fuzz({"hang": hang}, count=1, seed=7, computes=0.05, keep=tmp_path)
    assert "hang: Hang: computes too long" in found
    assert (tmp_path / "hang-7-0").exists()


def test_memory_that_grows_is_a_finding(tmp_path: Path) -> None:
    kept: list[bytes] = []
    found = fuzz({"leak": lambda data: kept.append(b"x" * (1 << 20))}, 100, 7, keep=tmp_path)
    assert "the memory has grown by" in found
    assert fuzz({"none": lambda data: None}, 100, 7, keep=tmp_path) == ""


def test_a_damaged_checkpoint_is_an_error_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    from midflight.errors import StateError
    from midflight.runtime.state import checkpoint
    from midflight.runtime.state.holdings import Holdings

    path = tmp_path / "checkpoint"
    holdings = Holdings({"model": torch.nn.Linear(2, 2)})
    checkpoint.save(path, holdings.capture({}))
    good = path.read_bytes()
    chance = random.Random(3)
    for _ in range(600):
        path.write_bytes(mutate(good, chance))
        try:
            checkpoint.load_into(path, holdings)
        except StateError as error:
            assert str(path) in str(error)
