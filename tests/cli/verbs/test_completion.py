"""Completion, asked of every shell that is installed, under both names of the program."""

import subprocess
from pathlib import Path

import pytest

from midflight.cli.messages import PROGRAMS
from midflight.cli.verbs import VERBS, completion
from tests.cli import canned
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena, run_program
from tests.cli.shells import has, offered

pytestmark = pytest.mark.slow
SHELLS = [
    pytest.param(
        shell, marks=pytest.mark.skipif(not has(shell), reason=f"{shell} is not installed")
    )
    for shell in completion.SHELLS
]
POLICIES = ["Always", "ExitCode", "Never", "OnFailure"]


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def script_of(program: str, shell: str, home: Path) -> Path:
    done = run_program(home, "completion", shell, name=program)
    assert (done.code, done.err) == (0, "")
    path = home / f"{program}.{shell}"
    path.write_text(done.out)
    return path


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_script_knows_all_verbs_and_asks_the_program_by_its_name(
    shell: str, program: str, tmp_path: Path
) -> None:
    text = script_of(program, shell, tmp_path).read_text()
    assert all(verb in text for verb in VERBS)
    for kind in ("jobs", "runs", "trainings", "nodes"):
        assert f"{program} names {kind}" in text
    other = next(name for name in PROGRAMS if name != program)
    assert f"{other} names" not in text
    assert {*POLICIES} <= {*text.replace('"', " ").replace("(", " ").replace(")", " ").split()}


def test_a_script_for_zsh_can_be_sourced_as_well_as_autoloaded(tmp_path: Path) -> None:
    text = script_of("arena", "zsh", tmp_path).read_text()
    assert text.startswith("#compdef arena\n")
    assert "if [[ $zsh_eval_context[-1] != loadautofunc ]]; then" in text


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_no_syntax_errors(shell: str, program: str, tmp_path: Path) -> None:
    subprocess.run([shell, "-n", script_of(program, shell, tmp_path)], check=True, timeout=60)


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_flags_values_and_names_are_offered(
    shell: str, program: str, fake: FakeServer
) -> None:
    """Names are asked for at that moment, of a server that runs."""
    fake.jobs = [canned.job()]
    run = fake.home / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "spec.json").touch()
    script = script_of(program, shell, fake.home)

    def after(line: str) -> list[str]:
        return offered(shell, script, f"{program} {line}", {"MIDFLIGHT_HOME": str(fake.home)})

    assert after("scaleo") == ["scaleout"]
    assert after("submit etjob --work") == [
        "--worker-annotation",
        "--worker-restart-policy",
        "--workers",
        "--working-dir",
    ]
    assert after("submit etjob --worker-restart-policy ") == POLICIES
    assert after("get -o ") == ["classic", "json", "name", "wide", "yaml"]
    assert after("list --color ") == ["always", "auto", "never"]
    assert after("get ") == ["demo"]
    assert after("stop ") == ["mine"]
    assert after("status ") == ["demo", "mine"]
    assert after("node drain ") == ["node-1"]
    assert after("top node ") == ["node-1"]


def test_no_server_is_started_for_a_tab(arena: Arena, tmp_path: Path) -> None:
    assert arena("names", "jobs", MIDFLIGHT_HOME=str(tmp_path)).out.split() == []
    assert not (tmp_path / "server.sock").exists()


def test_an_unknown_shell_is_refused(arena: Arena) -> None:
    assert "invalid choice: 'tcsh'" in arena("completion", "tcsh").err
