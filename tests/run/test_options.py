"""What the launcher's command line means, and what is wrong with a bad one."""

import sys
from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.protocol.environment import JOIN_BANDWIDTH, WorkerEnv
from midflight.run.main import main
from midflight.run.options import UNBOUNDED, Options, parse


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"MIDFLIGHT_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def read(env: dict[str, str], *arguments: str) -> Options:
    return parse([*arguments, sys.executable, "train.py", "--lr", "3"], env)


def sizes(options: Options) -> tuple[int, int, int]:
    return options.spec.np, options.spec.min_np, options.spec.max_np


def test_everything_behind_the_command_belongs_to_the_command(env: dict[str, str]) -> None:
    command = (sys.executable, "train.py", "--lr", "3")
    assert read(env, "-np", "2").spec.command == command
    assert read(env, "-np", "2", "--").spec.command == command
    assert parse(["sh", "--", "-np", "3"], env).spec.command == ("sh", "--", "-np", "3")


def test_a_script_alone_is_run_by_python(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with pytest.raises(UsageError, match="there is no script"):
        parse([str(script)], env)
    script.touch()
    assert parse([str(script), "--lr", "3"], env).spec.command == (
        *(sys.executable, "-u"),
        *(str(script), "--lr", "3"),
    )
    elsewhere = parse(["-H", "far:1", "train.py"], env)
    assert elsewhere.spec.command == ("python3", "-u", "train.py")
    script.chmod(0o755)
    assert parse([str(script)], env).spec.command == (str(script),)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (1, 1, 1)),
        (["--nproc-per-node", "2"], (2, 2, 2)),
        (["-np", "3"], (3, 3, 3)),
        (["--num-proc", "3", "--max-np", "5"], (3, 3, 5)),
        (["-np", "3", "--min-np", "2"], (3, 2, UNBOUNDED)),
        (["--min-np", "2"], (2, 2, UNBOUNDED)),
        (["-H", "localhost:2,127.0.0.1:2"], (4, 4, 4)),
        (["-H", "localhost:2,127.0.0.1:2", "--max-np", "3"], (3, 3, 3)),
        (["--host-discovery-script", "true"], (1, 1, UNBOUNDED)),
    ],
)
def test_sizes_that_are_not_given_follow_from_the_others(
    env: dict[str, str], arguments: list[str], expected: tuple[int, int, int]
) -> None:
    assert sizes(read(env, *arguments)) == expected


def test_this_machine_has_room_for_as_many_as_were_spoken_of(env: dict[str, str]) -> None:
    assert read(env, "-np", "3").hosts == {"localhost": 3}
    assert read(env, "-np", "3", "--max-np", "9").hosts == {"localhost": 9}
    assert read(env, "-np", "3", "--min-np", "1").hosts == {"localhost": 3}
    assert read(env, "-np", "3", "--slots-per-host", "4").hosts == {"localhost": 4}
    assert read(env, "--host-discovery-script", "true").hosts == {}


def test_the_ledgers_lie_in_the_run_folder(env: dict[str, str], tmp_path: Path) -> None:
    assert read(env, "--name", "demo").spec.ledger == str(tmp_path / "runs/demo/ledgers")


def test_a_run_may_keep_no_ledgers(env: dict[str, str]) -> None:
    assert read(env, "--ledger-dir", "none").spec.ledger == ""
    assert read({**env, "MIDFLIGHT_LEDGER_DIR": "none"}).spec.ledger == ""


def test_a_name_is_made_up_where_none_is_given(env: dict[str, str]) -> None:
    made_up = read(env)
    assert made_up.spec.name.startswith("run-")
    assert not made_up.name_was_given
    assert made_up.spec.name != read(env).spec.name


def test_a_command_that_exists_only_elsewhere_is_left_to_the_hosts(env: dict[str, str]) -> None:
    assert parse(["-H", "far-away:1", "no-such-command"], env).hosts == {"far-away": 1}


@pytest.mark.parametrize("text", ["500M", "500MB", "500MB/s", "0.5G"])
def test_members_are_told_the_bandwidth_of_a_join(env: dict[str, str], text: str) -> None:
    told = read(env, "--join-bandwidth", text).spec.environment
    assert told == {JOIN_BANDWIDTH: "500000000"}
    worker = WorkerEnv("r", "m0", "a", 0, "a", "a:1", "t", 1.0, 1.0, "").to_env()
    found, unlimited = (WorkerEnv.from_env({**worker, **more}) for more in (told, {}))
    assert found is not None and found.join_bandwidth == 5e8
    own = WorkerEnv.from_env({**worker, JOIN_BANDWIDTH: "500M"})
    assert own == found
    assert unlimited is not None and unlimited.join_bandwidth is None


BAD = [
    (["--what", "3", "--", "sh"], "unrecognized arguments: --what"),
    (["-np", "0", "sh"], "wanted a whole number from 1 to 10000, got '0'"),
    (["-np", "-3", "sh"], "wanted a whole number from 1 to 10000, got '-3'"),
    (["-np", "many", "sh"], "got 'many'"),
    (["-np", "1000000", "sh"], "got '1000000'"),
    (["--min-np", "0", "sh"], "--min-np"),
    (["-np", "2", "--min-np", "3", "sh"], "--min-np 3, -np 2"),
    (["-np", "5", "--max-np", "4", "sh"], "-np 5, --max-np 4"),
    (["--min-np", "4", "--max-np", "2", "sh"], "--min-np 4, -np 4, --max-np 2"),
    (["-np", "2"], "no command given"),
    (["-np", "2", "--"], "no command given"),
    (["-np", "2", "no-such-command"], "'no-such-command' was not found"),
    (["-np", "2", "/etc/passwd"], "may not be executed"),
    (["-H", "a:b", "sh"], "-H wants HOST:SLOTS,..., got 'a:b'"),
    (["-H", "localhost:1", "-np", "2", "sh"], "2 members needed to start"),
    (["-H", "a:1", "--hostfile", "f", "sh"], "not allowed with argument -H"),
    (["--hostfile", "/no/such/file", "sh"], "cannot read the hostfile"),
    (["--cooldown", "9", "3", "sh"], "--cooldown wants MIN <= MAX"),
    (["--reset-limit", "-1", "sh"], "--reset-limit"),
    (["--elastic-timeout", "0", "sh"], "--elastic-timeout must be more than 0"),
    (["--elastic-timeout", "nan", "sh"], "wanted a number of seconds"),
    (["--grace", "soon", "sh"], "wanted a number of seconds, 0 or more, got 'soon'"),
    (["--join-bandwidth", "fast", "sh"], "wanted bytes per second, as in 500M or 1Gi"),
    (["--join-bandwidth", "-1M", "sh"], "--join-bandwidth: expected one argument"),
    (["--join-bandwidth", "1", "sh"], "1k or more, got '1'"),
    (["--listen", "here", "sh"], "--listen wants HOST:PORT"),
    (["--listen", "127.0.0.1:99999", "sh"], "--listen wants HOST:PORT"),
    (["--name", "Über uns", "sh"], "a run's name has"),
    (["--output-dir", "/dev/null/here", "sh"], "--output-dir: cannot make"),
    (["--ledger-dir", "/dev/null/here", "sh"], "--ledger-dir: cannot make"),
]


@pytest.mark.parametrize(("arguments", "complaint"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_what_is_wrong_is_said_in_one_line_with_exit_code_2(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path / "home"))
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("midflight: error: ")
    assert said.err.count("\n") == 1
    assert complaint in said.err
    assert not (tmp_path / "home").exists()


def test_a_store_that_cannot_be_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MIDFLIGHT_HOME", str(tmp_path))
    assert main(["--store", "redis://here", "sh"]) == 2
    assert "store URL: wanted a path" in capsys.readouterr().err


def test_a_bad_option_is_an_error_of_its_own_type(env: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read(env, "-np", "0")
