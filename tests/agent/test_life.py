"""The agent's own life: joining, losing the coordinator, notices, and ends that leave nobody."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from midflight.protocol.messages import (
    AgentJoined,
    AgentLeaving,
    MemberExited,
    MemberNotStarted,
    MemberStarted,
    Shutdown,
)
from tests.agent.recording_coordinator import (
    RecordingCoordinator,
    Stage,
    ended,
    scenario,
    send_signal,
    staged,
    start_agent,
)

pytestmark = pytest.mark.slow  # real processes or servers


# A member with a child in its group, and one that has left the group.
FAMILY = """
import subprocess, sys, time
near = subprocess.Popen(["sleep", "1000"])
far = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("family", near.pid, far.pid, flush=True)
time.sleep(1000)
"""


async def family(stage: Stage, member: str = "m1") -> list[int]:
    stage.start(member, sys.executable, "-c", FAMILY)
    started = await stage.coordinator.first(MemberStarted, lambda m: m.member == member)
    await stage.coordinator.line("family")
    return [started.pid, *map(int, stage.coordinator.lines(member)[0].split()[1:])]


@scenario
async def test_an_agent_says_what_it_offers_and_beats(tmp_path: Path) -> None:
    async with staged(tmp_path, "--slots", "3") as stage:
        joined = await stage.coordinator.first(AgentJoined)
        assert joined == AgentJoined(3, "127.0.0.1", stage.pid, ())
        stage.start("m1", "sh", "-c", "sleep 0.7")
        await stage.coordinator.first(MemberExited)
        assert stage.coordinator.beats >= 2


@scenario
async def test_nobody_is_left_when_an_agent_is_killed(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        pids = await family(stage)
        stage.agent.kill()
        for pid in pids:
            await ended(pid)


@scenario
async def test_the_guard_alone_is_enough(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        # A shell between agent and child: the signal at the parent's death does not reach it.
        stage.start("m1", "sh", "-c", "sleep 1000 & echo child $!; trap '' TERM HUP INT; wait")
        await stage.coordinator.line("child")
        child = int(stage.coordinator.lines("m1")[0].split()[1])
        stage.agent.kill()
        await ended(child)


@scenario
async def test_a_lost_guard_is_replaced(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        pids = await family(stage)
        first = await guard_of(stage.pid)
        assert first, "an agent has a guard"
        send_signal(first, signal.SIGKILL)
        await ended(first)
        while await guard_of(stage.pid) in (0, first):  # nothing tells of a stranger's fork
            continue
        stage.agent.kill()
        for pid in pids:
            await ended(pid)


async def guard_of(agent: int) -> int:
    """The pid of an agent's guard, 0 if it has none."""
    listed = await asyncio.create_subprocess_exec(
        "ps", "-ww", "-o", "pid=,args=", "--ppid", str(agent), stdout=asyncio.subprocess.PIPE
    )
    text = (await listed.communicate())[0].decode()
    return next((int(line.split()[0]) for line in text.splitlines() if "guard.py" in line), 0)


@scenario
async def test_members_do_not_notice_that_the_coordinator_was_away(tmp_path: Path) -> None:
    async with staged(tmp_path, "--slots", "2") as stage:
        coordinator = stage.coordinator
        for member in ("stays", "goes"):
            stage.start(member, "sh", "-c", "echo up; read line < $FIFO; echo late; exit 4",
                        FIFO=make_fifo(tmp_path / member))  # fmt: skip
        stays = await coordinator.first(MemberStarted, lambda m: m.member == "stays")
        goes = await coordinator.first(MemberStarted, lambda m: m.member == "goes")
        await coordinator.vanish()
        (tmp_path / "goes").write_text("now\n")
        await ended(goes.pid)
        coordinator.heard.clear()
        await coordinator.listen()
        joined = await coordinator.first(AgentJoined)
        assert [(m.member, m.pid) for m in joined.members] == [("stays", stays.pid)]
        assert await coordinator.first(MemberExited) == MemberExited("goes", 4, "")
        assert coordinator.lines("goes")[-1] == "late"
        assert coordinator.heard[0] == joined
        (tmp_path / "stays").write_text("now\n")
        await coordinator.first(MemberExited, lambda m: m.member == "stays")
        assert coordinator.lines("stays")[-1] == "late"


def make_fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


@pytest.mark.slow
@scenario
async def test_a_coordinator_that_says_nothing_is_dialled_again(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.coordinator.answers_beats = False
        stage.coordinator.heard.clear()
        await stage.coordinator.first(AgentJoined)


@scenario
async def test_an_agent_without_a_coordinator_keeps_its_members_and_ends_after_the_last(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path, "--reconnect-timeout", "0.2") as stage:
        gate = make_fifo(tmp_path / "gate")
        stage.start("m1", "sh", "-c", "echo up; read line < $FIFO", FIFO=gate)
        member = await stage.coordinator.first(MemberStarted)
        await stage.coordinator.line("up")
        await stage.coordinator.vanish()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):  # it dials once a second at least
                await stage.exit_code()
        os.kill(member.pid, 0)  # it is there
        (tmp_path / "gate").write_text("now\n")
        assert await stage.exit_code() == 1
        assert stage.agent.stderr is not None
        last = (await stage.agent.stderr.read()).decode().splitlines()[-1]
        assert last.startswith("midflight agent host-1: gave up: no coordinator at")


@scenario
async def test_shutdown_ends_everybody_and_then_the_agent(tmp_path: Path) -> None:
    async with staged(tmp_path, "--slots", "2") as stage:
        stage.start("deaf", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
        await stage.coordinator.line("deaf")
        pids = await family(stage)
        stage.coordinator.say(Shutdown(0.3, "done"))
        assert await stage.exit_code() == 0
        for pid in pids:
            await ended(pid)
        exits = [m for m in stage.coordinator.heard if isinstance(m, MemberExited)]
        assert {exit.member: exit.code for exit in exits} == {"m1": -15, "deaf": -9}


@scenario
async def test_sigterm_is_a_notice_and_members_may_finish(tmp_path: Path) -> None:
    async with staged(tmp_path, "--grace", "20") as stage:
        stage.start("m1", "sh", "-c", "echo up; read line < $FIFO; exit 6",
                    FIFO=make_fifo(tmp_path / "fifo"))  # fmt: skip
        await stage.coordinator.line("up")
        stage.agent.terminate()
        assert await stage.coordinator.first(AgentLeaving) == AgentLeaving(20.0)
        stage.start("m2", "true")
        refused = await stage.coordinator.first(MemberNotStarted)
        assert refused == MemberNotStarted("m2", "host host-1 is leaving")
        (tmp_path / "fifo").write_text("go\n")
        assert await stage.exit_code() == 0
        assert (await stage.coordinator.first(MemberExited)).code == 6


@pytest.mark.parametrize("options", [("--grace", "0.3"), ("--grace", "60")])
@scenario
async def test_a_notice_ends_by_force_in_time_or_by_a_second_one(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    async with staged(tmp_path, *options) as stage:
        pids = await family(stage)
        stage.agent.terminate()
        await stage.coordinator.first(AgentLeaving)
        if "60" in options:
            stage.agent.terminate()
        assert await stage.exit_code() == 0
        for pid in pids:
            await ended(pid)
        assert (await stage.coordinator.first(MemberExited)).code == -9


@scenario
async def test_a_notice_to_an_idle_agent_ends_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.agent.terminate()
        assert await stage.exit_code() == 0
        assert stage.coordinator.count(AgentLeaving) == 1


@scenario
async def test_an_interrupt_ends_everything_at_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        pids = await family(stage)
        send_signal(stage.pid, signal.SIGINT)
        assert await stage.exit_code() == 130
        for pid in pids:
            await ended(pid)


@scenario
async def test_a_wrong_token_is_refused_with_the_coordinators_reason(tmp_path: Path) -> None:
    coordinator = RecordingCoordinator()
    await coordinator.listen()
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("another secret")
    agent = await start_agent(tmp_path, coordinator.address)
    _, stderr = await agent.communicate()
    assert agent.returncode == 1
    (line,) = stderr.decode().splitlines()
    assert line == ("midflight agent host-1: the token does not match; use this run's token file")
    await coordinator.vanish()
