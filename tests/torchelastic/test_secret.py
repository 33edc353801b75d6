"""The secret that nodes share: where it comes from, and what it keeps apart."""

import asyncio
import re
import stat
from pathlib import Path

import pytest

from midflight.compat.torchelastic.c10d import C10dMeeting
from midflight.compat.torchelastic.node_protocol import Identity
from midflight.compat.torchelastic.rendezvous import Rendezvous
from midflight.compat.torchelastic.secret import TOKEN_FILE, secret_of, warning
from midflight.errors import UsageError
from midflight.protocol.job import JobSpec
from midflight.store.etcd_address import Endpoint


def test_on_one_machine_it_comes_from_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    home = {"MIDFLIGHT_HOME": str(tmp_path / "home")}
    secret = secret_of("job", True, home)
    assert secret == secret_of("job", True, home), "the next node finds the same"
    assert secret != secret_of("other", True, home)
    assert secret != secret_of("job", True, {"MIDFLIGHT_HOME": str(tmp_path / "another")})
    (file,) = (tmp_path / "home").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert secret.decode() not in file.read_text()


def test_between_machines_the_name_alone_makes_it_unless_there_is_a_token(tmp_path: Path) -> None:
    here, there = ({"MIDFLIGHT_HOME": str(tmp_path / name)} for name in ("here", "there"))
    assert secret_of("job", False, here) == secret_of("job", False, there)
    assert secret_of("job", False, here) != secret_of("other", False, there)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("secret\n")
    with_token = {**here, "MIDFLIGHT_TOKEN_FILE": str(token)}
    assert secret_of("job", False, with_token) != secret_of("job", False, here)
    assert secret_of("job", True, with_token) == secret_of("job", False, with_token)


def test_a_secret_that_others_can_guess_is_warned_of(tmp_path: Path) -> None:
    assert "known to everybody" in (warning("none", False, {}) or "")
    assert "whoever guesses it" in (warning("job", False, {}) or "")
    assert warning("none", True, {}) is None
    assert warning("none", False, {"MIDFLIGHT_TOKEN_FILE": "token"}) is None


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(UsageError, match="missing"):
        secret_of("job", False, {"MIDFLIGHT_TOKEN_FILE": missing})


def test_the_start_of_a_node_says_that_its_secret_can_be_guessed_and_offers_better_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = {"MIDFLIGHT_HOME": str(tmp_path)}
    node = Identity("node-0", "127.0.0.1", JobSpec("job", ("sh",), 1, 1, 2))

    def said(host: str, run_id: str, environ: dict[str, str]) -> str:
        meeting = Rendezvous("c10d", (Endpoint(host, 29400),), run_id, config={"is_host": "no"})
        arrival = asyncio.run(C10dMeeting(meeting, environ).arrive(node))
        arrival.listener.close()
        return capsys.readouterr().err

    for run_id in ("none", "job"):
        line = said("192.0.2.1", run_id, home)
        assert line.count("\n") == 1 and "warning: " in line
        [offered] = re.findall(r"--rdzv-id=([0-9a-f]{32})\b", line)
        assert offered not in said("192.0.2.1", run_id, home)
        assert "MIDFLIGHT_TOKEN_FILE" in line and "umask 077" in line
    assert said("127.0.0.1", "none", home) == ""
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("secret")
    assert said("192.0.2.1", "none", home | {TOKEN_FILE: str(tmp_path / "token")}) == ""
