"""Bad options: one clear line, exit code 2, nothing started."""

import socket
from pathlib import Path

import pytest

from midflight.agent.main import main


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("secret\n")
    return str(path)


def line_of(options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code = main(options)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else -1
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("midflight agent")
    return line


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--join", "nowhere"], "wanted HOST:PORT, got 'nowhere'"),
        (["--join", "host:0"], "wanted HOST:PORT, got 'host:0'"),
        (["--slots", "0"], "wanted a whole number from 1 to 10000, got '0'"),
        (["--slots", "two"], "wanted a whole number from 1 to 10000, got 'two'"),
        (["--warm", "-1"], "wanted a whole number from 0 to 10000, got '-1'"),
        (["--grace", "nan"], "wanted a number of seconds, 0 or more, got 'nan'"),
        (["--name", "a b"], "wanted a name without blanks, got 'a b'"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
        (["--token-file", "/nowhere/t"], "cannot read the token file /nowhere/t: No such file"),
        (["--token-file", "/"], "cannot read the token file /: Is a directory"),
        (["--token-file", "/dev/null"], "the token file /dev/null is no file"),
    ],
)
def test_a_bad_option_is_named_in_one_line(
    options: list[str], complaint: str, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ["--join", "127.0.0.1:1", "--token-file", token, "--name", "host-1"]
    assert complaint in line_of(good + options, capsys)


def test_a_missing_option_is_named_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--token-file" in line_of(["--join", "h:1", "--name", "n"], capsys)


def test_an_address_where_nobody_answers_is_said(
    token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # bound but not listening: nobody else can answer there
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        options = ["--join", address, "--token-file", token, "--name", "n"]
        line = line_of([*options, "--join-timeout", "0.3"], capsys)
    assert f"no coordinator at {address} within 0.3 s" in line
