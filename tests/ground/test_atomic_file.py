"""Files that are there as a whole or not at all."""

from pathlib import Path

import pytest

from midflight import atomic_file
from midflight.errors import UsageError
from midflight.rundir import RunDir


def test_a_file_is_replaced_as_a_whole_and_belongs_to_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    atomic_file.write(path, b"old")
    atomic_file.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "address" / "in the way").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot write"):
        RunDir(tmp_path).write_address("127.0.0.1:1")
    assert [path.name for path in tmp_path.iterdir()] == ["address"]
