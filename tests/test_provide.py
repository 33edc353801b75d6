"""Midflight as a folder: what an init container leaves for an image that has only Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midflight import provide


def provided(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a container would that mounts the folder, without any package of ours."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(folder),
            **environment,
        },
    )


def test_what_is_provided_runs_without_any_installed_package(tmp_path: Path) -> None:
    assert provide.main([str(tmp_path)]) == 0
    where = "import midflight; print(midflight.__file__)"
    # -S leaves site-packages off the path, where an editable midflight would be found.
    assert provided(tmp_path, sys.executable, "-S", "-P", "-c", where).stdout.startswith(
        str(tmp_path)
    )
    for module in ("midflight.agent", "midflight.run", "midflight.torchrun"):
        done = provided(tmp_path, sys.executable, "-S", "-P", "-m", module, "--help")
        assert done.returncode == 0, done.stderr


def test_its_commands_are_on_the_path(tmp_path: Path) -> None:
    provide.provide(tmp_path)
    done = provided(tmp_path, "midflight", "version", MIDFLIGHT_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert {"midflight", "arena", "horovodrun", "torchrun"} <= set(os.listdir(tmp_path / "bin"))
    assert all(os.access(path, os.X_OK) for path in (tmp_path / "bin").iterdir())


def test_anybody_can_read_it_whatever_the_umask_was(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        provide.provide(tmp_path)
    finally:
        os.umask(before)
    package = (tmp_path / "midflight").resolve()
    found = [package.parent, *package.parent.rglob("*")]
    assert len(found) > 100
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in found)


def test_doing_it_twice_changes_nothing(tmp_path: Path) -> None:
    provide.provide(tmp_path)
    first = sorted(os.listdir(tmp_path))
    inode = (tmp_path / "midflight" / "provide.py").stat().st_ino
    provide.provide(tmp_path)
    assert sorted(os.listdir(tmp_path)) == first
    assert (tmp_path / "midflight" / "provide.py").stat().st_ino == inode


def test_another_version_takes_its_place_and_who_has_the_old_one_keeps_it(tmp_path: Path) -> None:
    older = tmp_path / ".midflight-older"
    (older / "midflight").mkdir(parents=True)
    (tmp_path / "midflight").symlink_to(".midflight-older/midflight")
    provide.provide(tmp_path)
    assert (tmp_path / "midflight" / "provide.py").is_file()
    assert older.is_dir()


def test_a_copy_that_was_cut_short_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    cut = tmp_path / ".copying-cut" / "content" / "midflight"
    cut.mkdir(parents=True)
    provide.provide(tmp_path)
    assert (tmp_path / "midflight" / "__init__.py").is_file()


def test_a_folder_that_cannot_be_written_to_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert provide.main([str(file / "below")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(file) in said


@pytest.mark.parametrize("words", [[], ["a", "b"], ["--fast"]])
def test_anything_but_one_folder_is_a_wrong_command_line(words: list[str]) -> None:
    assert provide.main(words) == 2
