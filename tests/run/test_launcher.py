"""The launcher with real processes: exit codes, output, refusals."""

import shlex
import signal
import socket
import time

import pytest

from tests.run.scripts import FAIL, RANK, STUBBORN, WAIT, python
from tests.run.site import Site, eventually

pytestmark = pytest.mark.slow  # real processes or servers


def test_a_run_ends_with_0_and_its_lines_carry_their_rank(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(RANK))
    assert run.ends() == 0
    assert sorted(run.lines) == ["[0]<stdout>:rank 0 of 2", "[1]<stdout>:rank 1 of 2"]


def test_the_command_may_follow_without_dashes(site: Site) -> None:
    run = site.launch("-np", "1", *python(RANK))
    assert run.ends() == 0
    assert "[0]<stdout>:rank 0 of 1" in run.lines
    assert run.lines[0].startswith("midflight: this run is named run-")


def test_a_run_in_which_all_members_fail_ends_with_1(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(FAIL))
    assert run.ends() == 1
    assert "[0]<stderr>:out of luck" in run.lines
    assert sum("midflight: error:" in line for line in run.lines) == 1


def test_ctrl_c_ends_everything_within_5_s(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "2", "--", *python(STUBBORN))
    run.says("up", times=2)
    before = time.monotonic()
    run.send(signal.SIGINT)
    assert run.ends() == 130
    eventually(lambda: not site.processes(), within=0.5)
    assert time.monotonic() - before < 5.0
    assert "midflight: stopping demo (again to kill at once)" in run.lines
    assert site.status("demo")["phase"] == "failed"


def test_sigterm_ends_a_run_with_143(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "1", "--", *python(WAIT))
    run.says("up")
    run.send(signal.SIGTERM)
    assert run.ends(within=5.0) == 143


def test_a_second_ctrl_c_kills_at_once(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "1", "--grace", "60", "--", *python(STUBBORN))
    run.says("up")
    run.send(signal.SIGINT)
    run.says("again to kill at once")
    before = time.monotonic()
    run.send(signal.SIGINT)
    assert run.ends() == 130
    eventually(lambda: not site.processes(), within=0.5)
    assert time.monotonic() - before < 30.0  # members that ignore SIGTERM have 60 s otherwise


def test_ctrl_c_during_the_start_leaves_nothing(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "1", "--", *python(WAIT))
    eventually(lambda: site.processes("midflight.coordinator"))
    run.send(signal.SIGINT)
    assert run.ends(within=5.0) == 130


def test_a_second_launcher_of_the_same_name_is_refused(site: Site) -> None:
    first = site.launch("--name", "demo", "-np", "1", "--", *python(WAIT))
    first.says("up")
    second = site.launch("--name", "demo", "-np", "1", "--", *python(WAIT))
    second.process.wait(10)
    second.says("a run named demo is already running; choose another --name")
    assert second.ends() == 2
    assert first.process.poll() is None
    first.send(signal.SIGINT)
    first.ends()


def test_a_name_can_be_used_again_after_the_end(site: Site) -> None:
    for code in (FAIL, RANK):
        run = site.launch("--name", "demo", "-np", "1", "--", *python(code))
        run.ends()
    assert run.process.returncode == 0
    assert site.status("demo")["phase"] == "succeeded"


def test_a_port_that_is_taken_is_one_clear_line(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        run = site.launch("--name", "demo", "--listen", where, "--", *python(RANK))
        assert run.ends() == 1
    assert len(run.lines) == 1
    assert f"cannot listen on {where}: Address already in use" in run.lines[0]


def test_a_file_in_the_users_folder_does_not_stand_in_for_a_module_of_ours(site: Site) -> None:
    (site.folder / "asyncio.py").write_text("raise SystemExit('the wrong asyncio')")
    run = site.launch("--name", "demo", "-np", "1", "--", "echo", "fine")
    assert run.ends() == 0
    assert run.lines == ["[0]<stdout>:fine"]


def test_a_run_without_ledgers_leaves_the_users_own_files_alone(site: Site) -> None:
    kept = site.folder / "data.jsonl"  # named as a ledger is
    kept.write_text("mine\n")
    run = site.launch("--name", "demo", "-np", "1", "--ledger-dir", "none", "--", "echo", "fine")
    assert run.ends() == 0
    assert kept.read_text() == "mine\n"


def test_a_host_elsewhere_gets_a_command_line_that_works(site: Site) -> None:
    run = site.launch("--name", "demo", "-np", "1", "-H", "far-away:1", "--", *python(RANK))
    run.says("with a copy of the token file, run on far-away: midflight agent --join")
    words = shlex.split(run.lines[0].partition("far-away: midflight ")[2])
    agent = site.command(*words)
    assert agent.returncode == 0, agent.stderr
    assert run.ends() == 0
    assert "[0]<stdout>:rank 0 of 1" in run.lines
