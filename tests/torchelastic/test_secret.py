"""The secret that nodes share: where it comes from, and what it keeps apart."""

import stat
from pathlib import Path

import pytest

from midflight.compat.torchelastic.secret import secret_of, warning
from midflight.errors import UsageError


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
