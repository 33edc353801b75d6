"""The run's folder: whose it is, and who else may look into it."""

import os
import stat
from pathlib import Path

import pytest

from midflight.agent.finding import await_run
from midflight.errors import UsageError
from midflight.rundir import RunDir, read_token

OTHER = 12345
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


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


def test_a_home_that_others_can_look_into_is_closed(tmp_path: Path) -> None:
    for folder in ("home", "home/runs", "home/runs/job"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder).chmod(0o755)
    run_of(tmp_path / "home").create()
    made = ["home", "home/runs", "home/runs/job", "home/runs/job/ledgers"]
    assert [mode(tmp_path / name) for name in made] == [0o700] * 4


@only_root
@pytest.mark.parametrize("name", ["", "runs", "runs/job"])
def test_whatever_of_a_home_is_another_user_s_is_refused(tmp_path: Path, name: str) -> None:
    run_of(tmp_path).create()
    os.chown(tmp_path / name, OTHER, OTHER)
    with pytest.raises(UsageError, match=r"belongs to another user \(uid 12345.*choose another"):
        run_of(tmp_path).create()


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


@pytest.mark.parametrize("bits", [0o604, 0o640, 0o602])
def test_no_process_takes_a_token_that_others_can_read(tmp_path: Path, bits: int) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(bits)
    with pytest.raises(UsageError, match=r"can be read by others \(mode 6"):
        read_token(token)
    token.chmod(0o600)
    assert read_token(token) == b"secret"


def test_a_token_in_a_mounted_volume_is_taken_as_kubernetes_shows_it(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    kept = tmp_path / "..data" / "token"
    kept.write_text("secret\n")
    kept.chmod(0o444)
    (tmp_path / "token").symlink_to("..data/token")
    assert read_token(tmp_path / "token") == b"secret"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "token").symlink_to(tmp_path / "token")  # as a launcher has it
    assert read_token(tmp_path / "run" / "token") == b"secret"


@only_root
def test_a_token_of_root_s_may_be_for_the_group_of_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "token"
    kept.write_text("secret\n")
    kept.chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert read_token(kept) == b"secret"


def test_a_link_to_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("secret\n")
    (tmp_path / "shared").chmod(0o644)
    (tmp_path / "token").symlink_to(tmp_path / "shared")
    with pytest.raises(UsageError, match=r"can be read by others \(mode 644"):
        read_token(tmp_path / "token")


@only_root
@pytest.mark.parametrize("whose", ["token", "link"])
def test_a_token_that_another_user_has_chosen_is_refused(tmp_path: Path, whose: str) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    os.chown(tmp_path / whose, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(UsageError, match=rf"belongs to another user \(uid {OTHER}"):
        read_token(tmp_path / "link")


def test_a_token_that_is_a_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(UsageError, match="is no file"):
        read_token(tmp_path / "token")


@only_root
def test_an_agent_takes_no_orders_from_a_folder_of_another_user(tmp_path: Path) -> None:
    run_of(tmp_path).create()
    folder = tmp_path / "runs" / "job"
    (folder / "token").touch(0o600)
    (folder / "token").write_text("secret\n")
    (folder / "address").write_text("127.0.0.1:1\n")
    os.chown(folder, OTHER, OTHER)
    with pytest.raises(UsageError, match=r"belongs to another user .* decide what this user runs"):
        await_run(folder)


def test_an_agent_takes_no_orders_from_a_folder_that_everybody_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="everybody can put files into"):
        await_run(tmp_path)


def test_a_token_is_made_once_and_renewed_when_asked(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    folder.create()
    folder.make_token()
    first = folder.read_token()
    folder.make_token()
    assert folder.read_token() == first
    folder.make_token(anew=True)
    assert folder.read_token() != first
