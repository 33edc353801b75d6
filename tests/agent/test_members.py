"""Starting, watching, stopping and losing members, on a real agent with real processes."""

import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from midflight.protocol.messages import (
    FindPort,
    MemberExited,
    MemberNotStarted,
    MemberProbed,
    MemberStarted,
    Output,
    PortFound,
    ProbeMember,
    StopMember,
)
from tests.agent.recording_coordinator import alive, ended, scenario, send_signal, staged

pytestmark = pytest.mark.slow  # real processes or servers


STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("here", flush=True)
while True:
    time.sleep(60)
"""
WITH_A_CHILD = """
import os, subprocess
child = subprocess.Popen(["sleep", "1000"], start_new_session=os.environ.get("SESSION") == "own")
print("child", child.pid, flush=True)
os._exit(int(os.environ.get("CODE", "0")))
"""


@scenario
async def test_a_member_gets_its_environment_and_the_agents_folder(tmp_path: Path) -> None:
    async with staged(tmp_path, "--slots", "2", "--address", "10.1.2.3", FROM="agent") as stage:
        show = "import os; print(os.getcwd()); [print(f'{k}={v}') for k, v in os.environ.items()]"
        stage.start("m1", sys.executable, "-c", show, EXTRA="order", MIDFLIGHT_LEDGER="mine")
        assert (await stage.coordinator.first(MemberExited)).code == 0
        folder, *variables = stage.coordinator.lines("m1")
        assert folder == str(tmp_path)
        assert {
            "FROM=agent",
            "EXTRA=order",
            "MIDFLIGHT_RUN=run",
            "MIDFLIGHT_MEMBER=m1",
            "MIDFLIGHT_HOST=host-1",
            "MIDFLIGHT_SLOT=0",
            "MIDFLIGHT_ADDRESS=10.1.2.3",
            f"MIDFLIGHT_COORDINATOR={stage.coordinator.address}",
            f"MIDFLIGHT_TOKEN_FILE={tmp_path}/token",
            "MIDFLIGHT_ELASTIC_TIMEOUT=60",
            "MIDFLIGHT_LEDGER=mine",
            "MIDFLIGHT_WARM=0",
            "OMP_NUM_THREADS=1",
        } <= set(variables)


@scenario
async def test_the_number_of_threads_is_left_alone_if_somebody_chose_it(tmp_path: Path) -> None:
    async with staged(tmp_path, "--slots", "2", OMP_NUM_THREADS="7") as stage:
        stage.start("m1", "sh", "-c", "echo $OMP_NUM_THREADS")
        await stage.coordinator.first(MemberExited)
        assert stage.coordinator.lines("m1") == ["7"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15)],
)
@scenario
async def test_the_exit_code_is_reported_as_it_was(ending: str, code: int, tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sh", "-c", f"echo sorry >&2; {ending}")
        assert await stage.coordinator.first(MemberExited) == MemberExited("m1", code, "sorry")


@scenario
async def test_output_comes_in_order_and_whole_before_the_exit(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        talk = "for i in range(3000): print('line', i)\nprint('no end', end='')"
        stage.start("m1", sys.executable, "-c", talk)
        await stage.coordinator.first(MemberExited)
        expected = [f"line {i}" for i in range(3000)] + ["no end"]
        assert stage.coordinator.lines("m1") == expected
        assert isinstance(stage.coordinator.heard[-1], MemberExited)


@scenario
async def test_a_line_is_forwarded_while_the_member_goes_on(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        before = time.time()
        stage.start("m1", "sh", "-c", "echo hello; echo oops >&2; exec sleep 1000")
        output = await stage.coordinator.first(Output, lambda o: o.stream == "stdout")
        assert (output.member, output.lines) == ("m1", ("hello",))
        assert before <= output.at <= time.time()
        await stage.coordinator.line("oops")


@scenario
async def test_the_report_of_a_death_ends_with_the_end_of_stderr(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sh", "-c", "for i in $(seq 100); do echo e$i >&2; done; exit 1")
        exited = await stage.coordinator.first(MemberExited)
        assert exited.tail.splitlines() == [f"e{i}" for i in range(41, 101)]


@scenario
async def test_a_death_is_reported_though_a_child_holds_the_pipe(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        # The child has a session of its own, so killing the group does not close its output.
        stage.start("m1", sys.executable, "-c", WITH_A_CHILD, SESSION="own", CODE="3")
        assert (await stage.coordinator.first(MemberExited)).code == 3
        child = int(stage.coordinator.lines("m1")[0].split()[1])
        assert alive(child)
        stage.agent.terminate()
        assert await stage.exit_code() == 0
        await ended(child)


@scenario
async def test_a_dead_member_takes_its_children_along(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", sys.executable, "-c", WITH_A_CHILD)
        await stage.coordinator.first(MemberExited)
        await ended(int(stage.coordinator.lines("m1")[0].split()[1]))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("no-such-thing", "x"), "no such command: no-such-thing"),
        (("/etc/passwd",), "/etc/passwd cannot be started: Permission denied"),
    ],
)
@scenario
async def test_a_command_that_cannot_be_started_is_answered_with_the_reason(
    command: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", *command)
        assert await stage.coordinator.first(MemberNotStarted) == MemberNotStarted("m1", reason)


@scenario
async def test_an_order_to_start_may_be_repeated(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sleep", "1000")
        started = await stage.coordinator.first(MemberStarted)
        stage.coordinator.heard.clear()
        stage.start("m1", "sleep", "1000")
        assert await stage.coordinator.first(MemberStarted) == started
        send_signal(started.pid, signal.SIGKILL)
        await stage.coordinator.first(MemberExited)
        stage.coordinator.heard.clear()
        stage.start("m1", "sleep", "1000")
        assert (await stage.coordinator.first(MemberExited)).code == -9


@scenario
async def test_a_stopped_member_may_end_by_itself_within_the_grace(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sh", "-c", "trap 'echo bye; exit 5' TERM; echo here; sleep 1000 & wait")
        await stage.coordinator.line("here")
        stage.coordinator.say(StopMember("m1", 60.0))
        assert (await stage.coordinator.first(MemberExited)).code == 5
        assert stage.coordinator.lines("m1") == ["here", "bye"]


@scenario
async def test_a_member_that_does_not_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", sys.executable, "-c", STUBBORN)
        await stage.coordinator.line("here")
        before = time.monotonic()
        stage.coordinator.say(StopMember("m1", 0.4))
        assert (await stage.coordinator.first(MemberExited)).code == -9
        assert time.monotonic() - before > 0.35
        assert stage.coordinator.lines("m1") == ["here", "asked to end"]


@scenario
async def test_without_grace_a_member_is_killed_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", sys.executable, "-c", STUBBORN)
        await stage.coordinator.line("here")
        stage.coordinator.say(StopMember("m1", 0.0))
        assert (await stage.coordinator.first(MemberExited)).code == -9


@pytest.mark.parametrize(("grace", "code"), [(60.0, -15), (0.0, -9)])
@scenario
async def test_a_suspended_member_ends_too(grace: float, code: int, tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sleep", "1000")
        send_signal((await stage.coordinator.first(MemberStarted)).pid, signal.SIGSTOP)
        stage.coordinator.say(StopMember("m1", grace))
        assert (await stage.coordinator.first(MemberExited)).code == code


@scenario
async def test_a_probe_tells_running_stopped_and_how_it_ended(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sleep", "1000")
        pid = (await stage.coordinator.first(MemberStarted)).pid

        async def probe() -> str:
            stage.coordinator.heard.clear()
            stage.coordinator.say(ProbeMember("m1"))
            return (await stage.coordinator.first(MemberProbed)).state

        assert await probe() == "running"
        send_signal(pid, signal.SIGSTOP)
        while (state := await probe()) == "running":  # the signal is still on its way
            continue
        assert state == "stopped"
        send_signal(pid, signal.SIGKILL)
        await stage.coordinator.first(MemberExited)
        stage.coordinator.heard.clear()
        stage.coordinator.say(ProbeMember("m1"))
        assert (await stage.coordinator.first(MemberExited)).code == -9
        stage.coordinator.say(ProbeMember("stranger"))
        assert (await stage.coordinator.first(MemberProbed)).state == "gone"


@scenario
async def test_a_probe_sees_a_stopped_script_behind_the_shell_that_waits_for_it(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        stage.start("m1", "sh", "-c", "sleep 1000 & echo child $!; wait")
        await stage.coordinator.line("child")
        send_signal(int(stage.coordinator.lines("m1")[0].split()[1]), signal.SIGSTOP)
        state = "running"
        while state == "running":  # the signal is still on its way
            stage.coordinator.heard.clear()
            stage.coordinator.say(ProbeMember("m1"))
            state = (await stage.coordinator.first(MemberProbed)).state
        assert state == "stopped"


@scenario
async def test_a_port_that_was_found_is_free(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.coordinator.say(FindPort())
        found = await stage.coordinator.first(PortFound)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", found.port))
