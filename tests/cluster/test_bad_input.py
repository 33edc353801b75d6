"""Bad input, through the real program: one clear line, the right exit code, and nothing left over.

What is refused before a job exists (exit code 2 or 1) leaves no job, no folder and no process. What
can only fail later fails the job, and `get` says why.
"""

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.repositories import PasswordServer
from tests.guides.terminal import Said, Terminal

pytestmark = pytest.mark.slow
ET = "midflight submit et --name=demo"
PY = "midflight submit pytorch --name=demo"


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("bad")) as opened:
        opened.types("midflight up --nodes 2 --gpus-per-node 1")
        yield opened


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Terminal]:
    """A home of its own, for what harms a server."""
    with Terminal(tmp_path) as opened:
        yield opened


def refused(terminal: Terminal, line: str, code: int = 2) -> str:
    """The one line that says why."""
    said = terminal.types(line, code=code)
    assert said.out == ""
    assert said.err.startswith("midflight: error: ") and said.err.count("\n") == 1, said
    return said.err


def nothing_stays(terminal: Terminal) -> None:
    assert terminal.types("midflight list -A -o name").out == ""
    assert not list(terminal.home.glob("jobs/*/*"))
    terminal.until("true", lambda _: len(terminal.processes()) == 1, within=10)  # the server


# --- refused before there is a job --------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("midflight submit et --name=Demo true", "lower case alphanumeric characters"),
        ("midflight submit et --name=-x true", "lower case alphanumeric characters"),
        (f"midflight submit et --name={'x' * 50} true", "the len 50 of name"),
        ("midflight submit et --name= true", 'required flag(s) "name" not set'),
        ("midflight submit tf --name=demo true", "etjob (et) and pytorchjob (pytorch); got 'tf'"),
        (f"{ET} -n 'Not/Here' true", "the namespace must consist of"),
        (f"{ET} --workers=two true", "wanted a whole number, got 'two'"),
        (f"{ET} --workers=0 true", "--workers is invalid: wanted at least 1, got 0"),
        (f"{ET} --workers=3 --max-workers=2 true", "--workers 3 is not between"),
        (f"{ET} --min-workers=3 --max-workers=2 true", "is less than --min-workers 3"),
        (f"{ET} --gpus=-1 true", "--gpus is invalid: wanted 0 or more, got -1"),
        (f"{ET} --memory=4GB true", "--memory is invalid: wanted a number such as"),
        (f"{ET} --cpu=half true", "--cpu is invalid"),
        (f"{ET} --max-wait-time=soon true", "wanted a length of time such as 90s"),
        (f"{PY} --running-timeout=-5s true", "wanted a length of time such as 90s"),
        (f"{PY} --clean-task-policy=Some true", "unsupported cleanTaskPolicy Some"),
        (f"{PY} --nproc-per-node=none true", "--nproc-per-node is invalid"),
        (f"{ET} --job-restart-policy=Sometimes true", "--job-restart-policy is invalid"),
        (f"{ET} -e 1A=x true", "'1A' is not a name for a variable"),
        (f"{ET} --wrokers=2 true", "unknown flag: --wrokers; did you mean --workers?"),
        (f"{ET} --running-timeout=1h true", "unknown flag: --running-timeout"),
        (f"{ET} --working-dir=/no/such true", "there is no such folder on this machine"),
        (f"{ET} --sync-mode=git true", "--syncSource should be set when syncMode is set"),
        (f"{ET} --sync-mode=hdfs --sync-source=x true", "Unknown sync mode: hdfs"),
        (f"{ET} --sync-mode=git --sync-source=--upload-pack=x true", "starts with '-'"),
        (f"{ET} -d data true", "dataset data has incorrect format"),
        (f"{ET} --data-dir=relative true", "must be absolute"),
        (f"{ET} -o xml true", "unknown output format,only support:[wide|json|yaml|name]"),
        ("midflight submit -f /no/such.yaml", "cannot read the job file /no/such.yaml"),
        ("midflight prune --since=old", "wanted a length of time"),
        ("midflight up --nodes=many", "wanted a whole number from 0"),
        ("midflight list --loglevel=loud", "Unknown level: loud"),
        ("midflight logs demo --since=5x", "failed to parse since seconds"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_in_one_line(
    terminal: Terminal, line: str, words: str
) -> None:
    assert words in refused(terminal, line)


@pytest.mark.parametrize(
    "line",
    [
        "midflight get nobody",
        "midflight logs nobody",
        "midflight wait nobody",
        "midflight events nobody",
        "midflight path nobody",
        "midflight top job nobody",
        "midflight attach nobody -- true",
        "midflight chaos kill nobody",
        "midflight scaleout et --name=nobody",
        "midflight scalein et --name=nobody",
        "midflight node drain nobody",
        "midflight top node nobody",
    ],
)
def test_a_name_that_nobody_has_is_told(terminal: Terminal, line: str) -> None:
    said = refused(terminal, line, code=1)
    assert "nobody" in said or "training job not found" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "kind: etjob\nnmae: x\ncommand: sh\nwrokers: 2\ncontainer: {imgae: y}\nzzz: 1",
            "unknown keys nmae (did you mean name?), wrokers (did you mean workers?), zzz, "
            "container.imgae (did you mean container.image?)",
        ),
        ("kind: etjob\nname: x\ncommand: sh\nworkers: two", "workers: wanted int, got 'two'"),
        ("kind: etjob\nname: x\ncommand: sh\nenv: [A]", "env: wanted names with values"),
        ("kind: etjob\nname: x\ncommand: sh\nsync: here", "sync: wanted names with values"),
        ("kind: dance\nname: x\ncommand: sh", "got 'dance'"),
        ("name: [x", "is not YAML"),
        ("", "wanted the fields of a job"),
    ],
)
def test_a_wrong_job_file_is_told_key_by_key(
    terminal: Terminal, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    assert words in refused(terminal, f"midflight submit -f {file}")


def test_an_answer_that_cannot_be_written_is_told(terminal: Terminal) -> None:
    assert "No space left on device" in refused(terminal, "midflight list > /dev/full", code=1)
    assert terminal.types("midflight list >&-") == Said(0, "", "")


def test_nothing_of_what_was_refused_stays_behind(terminal: Terminal) -> None:
    refused(terminal, f"{ET} --gpus=-1 true")
    nothing_stays(terminal)


# --- what fails as a job ------------------------------------------------------------------------


def ended(terminal: Terminal, line: str) -> Said:
    """A job that was accepted, and failed; it is deleted then, and nothing stays."""
    said = terminal.types(f"{line} --wait", code=1)
    terminal.types("midflight delete demo")
    nothing_stays(terminal)
    return said


def test_a_git_source_that_does_not_exist_fails_the_job_with_git_s_words(
    terminal: Terminal, tmp_path: Path
) -> None:
    line = f"{ET} --working-dir={tmp_path} --sync-mode=git --sync-source={tmp_path}/none.git true"
    assert f"repository '{tmp_path}/none.git' does not exist" in ended(terminal, line).err
    assert not list(tmp_path.iterdir())


def test_a_git_source_that_asks_for_a_password_is_told_how_to_give_it_and_never_shows_it(
    terminal: Terminal, tmp_path: Path
) -> None:
    with contextlib.closing(PasswordServer(tmp_path, "me", "right")) as server:
        sync = f"--working-dir={tmp_path} --sync-mode=git --sync-source=http://"
        said = ended(terminal, f"{ET} {sync}{server.host}/code.git true")
        assert "-e GIT_SYNC_USERNAME=... -e GIT_SYNC_PASSWORD=..." in said.err
        wrong = f"{ET} {sync}me:hunter2@{server.host}/code.git"
        assert "hunter2" not in terminal.types(f"{wrong} --dry-run true").out
        terminal.types(f"{wrong} true")
        terminal.types("midflight wait demo", code=1)
        shown = terminal.types("midflight get demo -e -o yaml; midflight get demo -e")
        assert "check GIT_SYNC_USERNAME and GIT_SYNC_PASSWORD" in shown.out
        assert f"source: http://{server.host}/code.git" in shown.out
        assert "hunter2" not in shown.out + shown.err
        assert "hunter2" not in (terminal.home / "server.log").read_text()
        terminal.types("midflight delete demo")
        nothing_stays(terminal)


@pytest.mark.parametrize("kind", [f"{ET} --run-in=launcher", PY])
def test_a_command_that_does_not_exist_fails_the_job_and_its_log_says_so(
    terminal: Terminal, kind: str
) -> None:
    said = terminal.types(f"{kind} --wait no-such-program", code=1)
    assert "ended with code 127" in said.err
    assert "no-such-program: not found" in terminal.types("midflight logs demo").out
    terminal.types("midflight delete demo")
    nothing_stays(terminal)


def test_a_shell_that_does_not_exist_fails_the_job(terminal: Terminal) -> None:
    said = ended(terminal, f"{ET} --run-in=launcher --shell=no-such-shell true")
    assert "cannot run 'no-such-shell': No such file or directory" in said.err


def test_what_never_fits_waits_with_the_reason(terminal: Terminal) -> None:
    terminal.types(f"{PY} --gpus=2 true")
    assert "Reason:      no node has 2 GPUs; the largest has 1" in (
        terminal.types("midflight get demo").out
    )
    assert "no node has 2 GPUs" in refused(terminal, "midflight logs demo", code=1)
    assert "does not train now" in refused(terminal, "midflight status demo", code=1)
    terminal.types("midflight delete demo")
    nothing_stays(terminal)


# --- the server's folder ------------------------------------------------------------------------


def test_a_second_server_on_the_same_folder_is_refused(terminal: Terminal) -> None:
    (pid,) = terminal.processes()
    said = terminal.types("python -m midflight.server", code=3)
    assert f"another server has {terminal.home} (process id {pid})" in said.err
    assert said.err.count("\n") == 1
    assert set(terminal.processes()) == {pid}


def test_what_belongs_to_another_user_is_not_trusted(own: Terminal) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    socket = own.home / "server.sock"
    socket.touch()
    os.chown(socket, 12345, 12345)
    said = refused(own, "midflight list", code=1)
    assert f"{socket} belongs to another user (uid 12345" in said
    socket.unlink()
    os.chown(own.home, 12345, 12345)
    assert "belongs to another user" in refused(own, "midflight list", code=1)
    assert own.processes() == {}
    os.chown(own.home, 0, 0)


@pytest.mark.parametrize(
    ("home", "words"),
    [("/proc/1/no", "choose another MIDFLIGHT_HOME"), (f"/tmp/{'x' * 120}", "too long")],
)
def test_a_folder_that_cannot_be_is_told(own: Terminal, home: str, words: str) -> None:
    assert words in refused(own, f"MIDFLIGHT_HOME={home} midflight list")
    assert not Path(home).exists()


def test_a_newer_journal_is_refused_and_left_alone(own: Terminal) -> None:
    own.types("midflight list; midflight down")
    with contextlib.closing(sqlite3.connect(own.home / "journal.db")) as journal:
        journal.execute("UPDATE meta SET version = version + 1")
        journal.commit()
    said = refused(own, "midflight list", code=1)
    assert "the server did not start" in said and "newer" in said
    assert own.processes() == {}
    with contextlib.closing(sqlite3.connect(own.home / "journal.db")) as journal:
        journal.execute("UPDATE meta SET version = version - 1")
        journal.commit()
    own.types("midflight list")


def test_a_broken_journal_is_refused_and_left_alone(own: Terminal) -> None:
    own.types("midflight list; midflight down")
    broken = b"this is no database, and has not been one for quite some time" * 100
    (own.home / "journal.db").write_bytes(broken)
    said = refused(own, "midflight list", code=1)
    assert "the server did not start" in said and "journal.db" in said
    assert own.processes() == {}
    assert (own.home / "journal.db").read_bytes() == broken
    (own.home / "journal.db").unlink()


def test_on_a_full_disk_nothing_is_half_made_and_the_line_says_why(tmp_path: Path) -> None:
    with small_disk(tmp_path) as terminal:
        terminal.types("midflight submit et --name=first --run-in=launcher 'sleep 600'")
        terminal.types("midflight wait first --for=running --timeout=60s")
        terminal.types("head -c 9000000 /dev/zero > $MIDFLIGHT_HOME/fill", code=1)
        said = refused(terminal, f"{ET} true", code=1)
        assert "is full: nothing was changed; free some space and try again" in said
        assert terminal.types("midflight list -o name").lines == ["first"]
        assert not list(terminal.home.glob("jobs/*/demo"))
        (terminal.home / "fill").unlink()
        terminal.types(f"{ET} --run-in=launcher --wait true")
        assert terminal.types("midflight list -o name").lines == ["demo", "first"]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Terminal]:
    """A terminal whose home is on a disk of 2 MB."""
    with tempfile.TemporaryDirectory(prefix="mf-") as disk:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk]
        if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("a small disk can only be made by root")
        try:
            terminal = Terminal(folder)
            terminal.home = Path(disk) / "home"
            terminal.env["MIDFLIGHT_HOME"] = str(terminal.home)
            with terminal:
                yield terminal
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
