"""What a launcher believes of a store that somebody else can write to."""

from dataclasses import replace
from pathlib import Path

import pytest

from midflight.coordinator import main as coordinator
from midflight.coordinator.core.state import Phase, State, initial
from midflight.coordinator.exit_codes import REFUSED
from midflight.coordinator.saved_state import Saving
from midflight.errors import SealBroken, UsageError
from midflight.protocol.job import JobSpec
from midflight.run.claim import claim
from midflight.run.coordinator import CoordinatorKeeper
from midflight.run.options import Options, parse
from midflight.store.urls import open_store

COMMAND = ("sh", "train.sh")


def options(home: Path, *words: str) -> Options:
    environ = {"MIDFLIGHT_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return parse([*words, "--name", "job", *COMMAND], environ)


def cut_off(home: Path, environment: dict[str, str] | None = None) -> State:
    spec = replace(options(home).spec, environment=environment or {})
    return replace(initial(spec, 1.0), launched_at=1.0)


def save(wanted: Options, state: State, secret: bytes) -> None:
    with open_store(wanted.folder.store_url) as store:
        Saving(store, "job", secret).save(state, 2.0)


def begun(home: Path) -> Options:
    """A run that has a token, and nothing in its store."""
    wanted = options(home)
    wanted.folder.create()
    wanted.folder.make_token()
    return wanted


def test_a_run_that_was_cut_off_is_taken_up_from_its_own_state(tmp_path: Path) -> None:
    wanted = begun(tmp_path)
    save(wanted, cut_off(tmp_path), wanted.folder.read_token())
    claimed = claim(wanted)
    claimed.lock.close()
    assert claimed.former is not None and claimed.former.spec.command == COMMAND


def test_a_state_that_somebody_else_wrote_starts_nothing(tmp_path: Path) -> None:
    wanted = begun(tmp_path)
    save(wanted, cut_off(tmp_path, {"LD_PRELOAD": "/tmp/evil.so"}), b"a guess")
    with pytest.raises(SealBroken, match=r"does not fit the run's token.*nothing is started"):
        claim(wanted)
    assert not wanted.folder.has_spec


def test_a_state_without_a_token_here_starts_nothing(tmp_path: Path) -> None:
    wanted = options(tmp_path)
    wanted.folder.create()
    save(wanted, cut_off(tmp_path), b"of another machine")
    with pytest.raises(SealBroken, match="Bring the token file of that run"):
        claim(wanted)


def test_command_and_environment_are_the_launchers_own(tmp_path: Path) -> None:
    """Even of a state with a good seal, as somebody might have who found an old token."""
    wanted = begun(tmp_path)
    save(wanted, cut_off(tmp_path, {"LD_PRELOAD": "/tmp/evil.so"}), wanted.folder.read_token())
    claim(wanted).lock.close()
    written = wanted.folder.read_spec()
    assert (written.command, written.environment) == (COMMAND, {})


def test_ledgers_of_former_runs_stay_for_as_long_as_a_run_goes_on_with_their_state(
    tmp_path: Path,
) -> None:
    wanted = options(tmp_path)
    ledgers = wanted.folder.ledgers

    def begin_anew() -> list[str]:
        claim(wanted).lock.close()
        found = sorted(ledgers.rglob("*.jsonl"))
        return [f"{path.relative_to(ledgers)} {path.read_text().strip()}" for path in found]

    assert begin_anew() == []
    (ledgers / "m0.jsonl").write_text("first")
    assert begin_anew() == ["former/m0.jsonl first"]
    assert begin_anew() == ["former/m0.jsonl first"]  # a run that made no step changes nothing
    (ledgers / "m0.jsonl").write_text('{"resumed":2}')
    second = 'm0.jsonl {"resumed":2}'
    assert begin_anew() == ["former/former/m0.jsonl first", f"former/{second}"]
    (ledgers / "m0.jsonl").write_text("from the start")
    assert begin_anew() == ["former/m0.jsonl from the start"]


def test_a_coordinator_that_finds_another_s_state_serves_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = begun(tmp_path)
    wanted.folder.write_spec(JobSpec("job", COMMAND, 1, 1, 1))
    save(wanted, cut_off(tmp_path), b"a guess")
    words = ["--run-dir", str(wanted.folder.path), "--listen", "127.0.0.1:0"]
    assert coordinator.main([*words, "--store", wanted.folder.store_url]) == REFUSED
    assert "does not fit the run's token" in capsys.readouterr().err
    assert wanted.folder.read_address() is None


def test_a_name_that_is_used_again_has_another_token(tmp_path: Path) -> None:
    wanted = begun(tmp_path)
    old = wanted.folder.read_token()
    save(wanted, replace(cut_off(tmp_path), phase=Phase.SUCCEEDED), old)
    claim(wanted).lock.close()
    assert wanted.folder.read_token() != old


def test_a_run_that_is_taken_up_keeps_its_token(tmp_path: Path) -> None:
    wanted = begun(tmp_path)
    old = wanted.folder.read_token()
    save(wanted, cut_off(tmp_path), old)
    claim(wanted).lock.close()
    assert wanted.folder.read_token() == old


# --- where the store is -----------------------------------------------------------------------


def test_a_store_with_a_password_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "store").touch(0o600)
    (tmp_path / "store").write_text("etcds://me:word@host:2379?ca=ca.pem\n")
    found = options(tmp_path, "--store-file", str(tmp_path / "store"))
    assert found.store == "etcds://me:word@host:2379?ca=ca.pem"


def test_a_file_with_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("etcd://me:hunter2@host:2379\n")
    (tmp_path / "store").chmod(0o644)
    with pytest.raises(UsageError, match=r"mode 644.*change the password") as refusal:
        options(tmp_path, "--store-file", str(tmp_path / "store"))
    assert "hunter2" not in str(refusal.value)
    (tmp_path / "store").write_text("etcd://host:2379\n")  # nothing to hide
    assert options(tmp_path, "--store-file", str(tmp_path / "store")).store == "etcd://host:2379"


def test_a_password_among_the_arguments_is_refused(tmp_path: Path) -> None:
    """A warning came when everybody could have read it already, and was read by few."""
    with pytest.raises(UsageError, match=r"every user of this machine.*--store-file") as refusal:
        options(tmp_path, "--store", "etcd://me:hunter2@host:2379")
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(UsageError, match="--store-file"):
        options(tmp_path, "--store", "etcd://me:hun/ter2@host:2379")
    for url in ("etcd://me@host:2379", "etcd://host:2379/a@b", "sqlite:///a:b@c"):
        assert options(tmp_path, "--store", url).store == url


def test_a_store_file_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store-file: cannot read"):
        options(tmp_path, "--store-file", str(tmp_path / "none"))


def test_a_store_cannot_be_given_twice(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("x.db\n")
    with pytest.raises(UsageError, match="--store or --store-file"):
        options(tmp_path, "--store", "y.db", "--store-file", str(tmp_path / "store"))


def test_the_coordinator_s_arguments_hold_no_password(tmp_path: Path) -> None:
    url = "etcd://me:hunter2@host:2379"
    keeper = CoordinatorKeeper(begun(tmp_path).folder, "job", url, "127.0.0.1:0", ["--verbose"])
    assert not any("hunter2" in word for word in keeper.arguments)
