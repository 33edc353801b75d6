"""`midflight shell`: the old names are found inside, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from midflight import shims


def shell(*words: str, typed: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "midflight.cli.main", "shell", *words],
        input=typed,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_command_finds_the_shims_and_its_exit_code_is_passed_on() -> None:
    done = shell("--", "sh", "-c", 'command -v horovodrun; echo "$PYTHONPATH"; exit 7')
    assert done.returncode == 7
    assert done.stdout.splitlines()[0] == f"{shims.BIN}/horovodrun"
    assert done.stdout.splitlines()[1].startswith(shims.PYTHON)
    assert done.stderr == ""


def test_without_a_command_there_is_a_shell_and_one_line_that_says_so() -> None:
    done = shell(typed="command -v horovodrun; exit 3\n", SHELL="/bin/sh")
    assert (done.returncode, done.stdout) == (3, f"{shims.BIN}/horovodrun\n")
    assert len(done.stderr.splitlines()) == 1
    assert "horovodrun" in done.stderr


def test_horovodrun_works_outside_of_any_job() -> None:
    done = shell("horovodrun", "--version")
    assert (done.returncode, done.stdout) == (0, "0.28.1\n")


def test_a_program_that_is_not_there_is_named() -> None:
    done = shell("--", "no-such-program")
    assert done.returncode == 2
    assert "cannot run 'no-such-program'" in done.stderr


def test_python_is_one_that_has_midflight() -> None:
    done = shell(
        "python", "-c", "import midflight, sys; print(sys.executable)", PATH="/usr/bin:/bin"
    )
    assert Path(done.stdout.strip()).parent == Path(sys.executable).parent, done.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_the_shims_come_first_however_often_they_are_asked_for(times: int) -> None:
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": "/mine"}
    for _ in range(times):
        environ |= shims.environment(environ)
    assert environ["PATH"] == f"{shims.BIN}:/usr/bin:/bin"
    assert environ["PYTHONPATH"] == f"{shims.PYTHON}:/mine"
    assert environ[shims.INTERPRETER] == sys.executable


def test_a_jobs_own_commands_stay_in_front() -> None:
    environ = {"PATH": "/job/bin:/usr/bin", shims.JOB_DIR: "/job"}
    assert shims.environment(environ)["PATH"] == f"/job/bin:{shims.BIN}:/usr/bin"


@pytest.mark.parametrize(
    ("there", "wish", "meant"), [(True, None, "1"), (True, "0", None), (False, None, None)]
)
def test_keras_2_is_meant_where_python_has_it_and_nobody_has_decided(
    tmp_path: Path, there: bool, wish: str | None, meant: str | None
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    package = tmp_path / "lib/python3.11/site-packages/tf_keras"
    if there:
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
    environ = {"PATH": str(python.parent)} | ({} if wish is None else {shims.KERAS: wish})
    assert shims.environment(environ).get(shims.KERAS) == meant
