"""The run's folder: whose it is, and who else may look into it."""

import os
import stat
from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.rundir import RunDir


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run_of(home: Path) -> RunDir:
    return RunDir.of("job", {"MIDFLIGHT_HOME": str(home)})


def test_every_folder_on_the_way_is_this_user_s_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run_of(tmp_path / "deep" / "home").create()
    finally:
        os.umask(before)
    made = ["deep", "deep/home", "deep/home/runs", "deep/home/runs/job"]
    assert [mode(tmp_path / name) for name in made] == [0o700] * 4


def test_a_folder_that_another_user_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_of(tmp_path)
    folder.create()
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UsageError, match=r"belongs to another user .*choose another"):
        folder.create()


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    folder.create()
    folder.make_token()
    assert mode(folder.token_file) == 0o600
    folder.token_file.chmod(0o640)
    with pytest.raises(UsageError, match=r"can be read by others .*delete it"):
        folder.read_token()


def test_a_token_is_made_once_and_renewed_when_asked(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    folder.create()
    folder.make_token()
    first = folder.read_token()
    folder.make_token()
    assert folder.read_token() == first
    folder.make_token(anew=True)
    assert folder.read_token() != first
