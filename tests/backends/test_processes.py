"""Keepers as the server sees them: started once, found again, told to stop, heard at the end."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from midflight.backends.local import identity, keeper
from midflight.backends.local.process_watch import Watch
from midflight.backends.local.processes import KEEPER_KILLED, Keepers
from midflight.backends.local.reports import Ended, NotStarted, Running, has_keeper, read_state
from tests.backends.instances import (
    PATIENCE,
    ended,
    plan,
    printed,
    python,
    scenario,
    send,
    shell,
    started,
    state,
    texts,
    until,
)
from tests.backends.test_keeper import FAMILY

pytestmark = pytest.mark.slow  # real processes


class Server:
    """What stands for the server: it starts keepers, and hears of ends."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.ends: asyncio.Queue[tuple[str, Ended]] = asyncio.Queue()
        self.keepers = Keepers(lambda *end: self.ends.put_nowait(end), watch)

    async def end(self, folder: Path) -> Ended:
        name, end = await asyncio.wait_for(self.ends.get(), PATIENCE)
        assert name == str(folder)
        return end


@contextlib.asynccontextmanager
async def serving(watch: Watch | None = None) -> AsyncIterator[Server]:
    server = Server(watch)
    try:
        yield server
    finally:
        server.keepers.close()


@pytest.fixture(autouse=True)
def nobody_stays(tmp_path: Path) -> Iterator[None]:
    """Whatever becomes of a test."""
    yield
    for path in tmp_path.rglob("state.json"):
        left = read_state(path.parent)
        if left is not None and left.kept:
            os.kill(left.keeper_pid, signal.SIGKILL)
            identity.kill_marked(left.mark)


@contextlib.contextmanager
def a_stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that nobody may touch."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        yield process
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(PATIENCE)


async def running(server: Server, folder: Path, order: dict[str, Any]) -> Running:
    outcome = await server.keepers.start(folder, order)
    assert isinstance(outcome, Running), outcome
    return outcome


async def clean(server: Server, folder: Path) -> None:
    await server.keepers.stop(folder, 0)
    await server.end(folder)


@scenario
async def test_an_instance_is_started_and_its_end_is_told(tmp_path: Path) -> None:
    async with serving() as server:
        order = shell("read x < fifo; exit 3", cwd=str(tmp_path))
        os.mkfifo(tmp_path / "fifo")
        outcome = await running(server, tmp_path, order)
        assert identity.is_same(outcome.pid, state(tmp_path)["start_time"])
        (tmp_path / "fifo").write_text("")
        end = await server.end(tmp_path)
        assert (end.attempt, end.code, end.reason, end.pid) == (1, 3, "", outcome.pid)
        assert end.ended_at >= end.started_at == outcome.started_at


@scenario
async def test_an_end_is_told_where_processes_can_only_be_looked_at(tmp_path: Path) -> None:
    async with serving(Watch(handles=False)) as server:
        await running(server, tmp_path, plan("sleep", "1000"))
        send(started(tmp_path), signal.SIGKILL)
        assert (await server.end(tmp_path)).code == -signal.SIGKILL


@scenario
async def test_what_has_ended_before_it_was_seen_to_run_is_returned_as_ended(
    tmp_path: Path,
) -> None:
    async with serving() as server:
        outcome = await server.keepers.start(tmp_path, shell("exit 9"))
        end = await server.end(tmp_path) if isinstance(outcome, Running) else outcome
        assert isinstance(end, Ended)
        assert end.code == 9
        assert server.ends.empty()


@scenario
async def test_what_cannot_be_started_is_returned_with_the_reason(tmp_path: Path) -> None:
    async with serving() as server:
        outcome = await server.keepers.start(tmp_path / "a", plan("no-such-program"))
        assert outcome == NotStarted(1, "cannot run 'no-such-program': No such file or directory")
        outcome = await server.keepers.start(tmp_path / "b", plan("true", cwd="/nowhere"))
        assert isinstance(outcome, NotStarted)
        assert "/nowhere" in outcome.reason
        (tmp_path / "file").write_text("")
        outcome = await server.keepers.start(tmp_path / "file", plan("true"))
        assert isinstance(outcome, NotStarted)
        assert (tmp_path / "a" / "plan.json").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_a_keeper_that_is_killed_before_it_said_anything_is_no_fault_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = tmp_path / "doomed.py"
    doomed.write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr(keeper, "__file__", str(doomed))

    async def start() -> object:
        async with serving() as server:
            return await server.keepers.start(tmp_path / "a", plan("true"))

    outcome = asyncio.run(start())
    assert isinstance(outcome, Ended)
    assert (outcome.attempt, outcome.code, outcome.reason) == (1, -9, KEEPER_KILLED)


@scenario
async def test_starting_an_attempt_again_finds_it_instead(tmp_path: Path) -> None:
    order = shell("echo made; exec sleep 1000")
    async with serving() as server:
        first, second = await asyncio.gather(
            server.keepers.start(tmp_path, order), server.keepers.start(tmp_path, order)
        )
        assert first == second == await server.keepers.start(tmp_path, order)
        await clean(server, tmp_path)
        again = await server.keepers.start(tmp_path, order)
        assert isinstance(again, Ended)
        assert server.ends.empty()
    assert texts(tmp_path) == ["made"]


@scenario
async def test_a_new_attempt_ends_one_that_is_still_there_and_tells_of_it(tmp_path: Path) -> None:
    async with serving() as server:
        await running(server, tmp_path, plan("sleep", "1000"))
        await running(server, tmp_path, plan("sleep", "1000", attempt=2))
        assert (await server.end(tmp_path)).attempt == 1
        late = await server.keepers.start(tmp_path, plan("true", attempt=1))
        assert late == NotStarted(1, "attempt 2 was made after it already")
        await clean(server, tmp_path)


@scenario
async def test_stopping_is_asked_first_and_harmless_when_repeated(tmp_path: Path) -> None:
    script = "trap 'echo asked' TERM; trap 'exit 4' USR1; echo up; while :; do sleep 0.05; done"
    async with serving() as server:
        outcome = await running(server, tmp_path, shell(script))
        await asyncio.to_thread(printed, tmp_path, "up")
        assert await server.keepers.stop(tmp_path, 1000)
        await asyncio.to_thread(printed, tmp_path, "asked")
        assert await server.keepers.stop(tmp_path, 1000)
        send(outcome.pid, signal.SIGUSR1)
        end = await server.end(tmp_path)
        assert (end.code, end.reason) == (4, "stopped")
        assert not await server.keepers.stop(tmp_path, 1000)


@scenario
async def test_a_stop_may_be_made_shorter(tmp_path: Path) -> None:
    async with serving() as server:
        await running(server, tmp_path, shell("trap '' TERM; echo up; exec sleep 1000"))
        await asyncio.to_thread(printed, tmp_path, "up")
        await server.keepers.stop(tmp_path, 1000)
        await server.keepers.stop(tmp_path, 0.1)
        assert (await server.end(tmp_path)).reason == "killed: it did not end in time"


@scenario
async def test_a_signal_reaches_the_group(tmp_path: Path) -> None:
    async with serving() as server:
        outcome = await running(server, tmp_path, shell("sleep 1000 & echo child $!; wait"))
        child = int((await asyncio.to_thread(printed, tmp_path, "child"))[0])
        assert server.keepers.signal(tmp_path, signal.SIGSTOP)
        await asyncio.to_thread(
            until,
            lambda: [keeper.stat_fields(pid)[0] for pid in (outcome.pid, child)] == ["T", "T"],
        )
        assert server.keepers.signal(tmp_path, signal.SIGKILL)
        assert (await server.end(tmp_path)).code == -signal.SIGKILL
        assert not server.keepers.signal(tmp_path, signal.SIGKILL)


@scenario
async def test_instances_outlive_the_server_and_are_found_again(tmp_path: Path) -> None:
    async with serving() as first:
        before = await running(first, tmp_path, plan("sleep", "1000"))
    async with serving() as second:
        assert await second.keepers.adopt(tmp_path, 1) == before
        assert await second.keepers.adopt(tmp_path, 1) == before
        assert await second.keepers.adopt(tmp_path, 2) is None
        assert first.ends.empty()
        await second.keepers.stop(tmp_path, 5)
        assert (await second.end(tmp_path)).reason == "stopped"
        assert second.ends.empty()


@scenario
async def test_what_ended_while_there_was_no_server_is_told_when_there_is_one(
    tmp_path: Path,
) -> None:
    async with serving() as first:
        await running(first, tmp_path, plan("sleep", "1000"))
    parent = state(tmp_path)["keeper_pid"]
    send(started(tmp_path), signal.SIGTERM)
    ended(parent)
    async with serving() as second:
        end = await second.keepers.adopt(tmp_path, 1)
        assert isinstance(end, Ended)
        assert (end.code, end.reason) == (-signal.SIGTERM, "")
        assert second.ends.empty()


@scenario
async def test_an_attempt_that_nobody_made_is_not_known(tmp_path: Path) -> None:
    async with serving() as server:
        assert await server.keepers.adopt(tmp_path, 1) is None
        assert await server.keepers.adopt(tmp_path / "nowhere", 1) is None
        assert not await server.keepers.stop(tmp_path, 1)
        (tmp_path / "state.json").write_text("[torn")
        assert await server.keepers.adopt(tmp_path, 1) is None
        (tmp_path / "state.json").write_text('{"attempt": "one"}')
        assert read_state(tmp_path) is None


@scenario
async def test_a_keeper_that_is_killed_takes_everybody_along(tmp_path: Path) -> None:
    async with serving() as server:
        await running(server, tmp_path, python(FAMILY + "time.sleep(1000)"))
        near, far, _ = map(int, await asyncio.to_thread(printed, tmp_path, "family"))
        send(state(tmp_path)["keeper_pid"], signal.SIGKILL)
        end = await server.end(tmp_path)
        assert (end.code, end.reason) == (-signal.SIGKILL, KEEPER_KILLED)
        assert not [pid for pid in (end.pid, near, far) if identity.start_time(pid)]
        os.kill(int(texts(tmp_path)[0].split()[3]), signal.SIGKILL)  # it has hidden its mark


@scenario
async def test_a_keeper_killed_while_there_was_no_server_is_found_out(tmp_path: Path) -> None:
    async with serving() as first:
        await running(first, tmp_path, shell("setsid sleep 1000 & echo child $!; wait"))
        child = int((await asyncio.to_thread(printed, tmp_path, "child"))[0])
    parent = state(tmp_path)["keeper_pid"]
    send(parent, signal.SIGKILL)
    ended(parent)
    async with serving() as second:
        end = await second.keepers.adopt(tmp_path, 1)
        assert isinstance(end, Ended)
        assert end.reason == KEEPER_KILLED
        ended(child)
        again = await second.keepers.start(tmp_path, shell("echo twice"))
        assert isinstance(again, Ended)


@scenario
async def test_a_recycled_pid_is_never_touched(tmp_path: Path) -> None:
    with a_stranger() as stranger:
        content = {
            "attempt": 1,
            "mark": "nobody has this one",
            "keeper_pid": stranger.pid,
            "keeper_start_time": "12345",
            "pid": stranger.pid,
            "start_time": "12345",
            "started_at": 1.0,
        }
        (tmp_path / "state.json").write_text(json.dumps(content))
        async with serving() as server:
            assert not server.keepers.signal(tmp_path, signal.SIGKILL)
            assert not await server.keepers.stop(tmp_path, 0)
            end = await server.keepers.adopt(tmp_path, 1)
            assert isinstance(end, Ended)
            assert end.reason == KEEPER_KILLED
            await running(server, tmp_path, plan("sleep", "1000", attempt=2))
            await clean(server, tmp_path)


@scenario
async def test_a_pid_from_before_the_machine_was_started_is_never_touched(tmp_path: Path) -> None:
    with a_stranger() as stranger:
        own = identity.start_time(stranger.pid)
        content = {"attempt": 1, "boot": "another", "pid": stranger.pid, "start_time": own}
        content |= {"keeper_pid": stranger.pid, "keeper_start_time": own, "started_at": 1.0}
        (tmp_path / "state.json").write_text(json.dumps(content))
        async with serving() as server:
            assert isinstance(await server.keepers.adopt(tmp_path, 1), Ended)
            assert not server.keepers.signal(tmp_path, signal.SIGKILL)


@scenario
async def test_a_keeper_that_was_about_to_start_when_the_server_died_is_waited_for(
    tmp_path: Path,
) -> None:
    order = plan("sleep", "1000")
    async with serving() as first:
        task = asyncio.create_task(first.keepers.start(tmp_path, order))
        await asyncio.to_thread(until, lambda: has_keeper(tmp_path))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    async with serving() as second:
        assert isinstance(await second.keepers.adopt(tmp_path, 1), Running)
        await clean(second, tmp_path)


@scenario
async def test_many_at_once_leave_no_zombies_and_no_warnings(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        async with serving() as server:
            folders = [tmp_path / str(number) for number in range(12)]
            orders = [shell(f"exit {number}") for number in range(12)]
            outcomes = await asyncio.gather(*map(server.keepers.start, folders, orders))
            ends = [outcome for outcome in outcomes if isinstance(outcome, Ended)]
            while len(ends) < len(folders):
                ends.append((await asyncio.wait_for(server.ends.get(), PATIENCE))[1])
            assert sorted(end.code for end in ends) == list(range(12))
            left = {state(folder)["keeper_pid"] for folder in folders}
            await asyncio.to_thread(until, lambda: not any(map(keeper.start_time, left)))
            await running(server, tmp_path / "stays", plan("sleep", "1000"))
        gc.collect()
        async with serving() as server:
            await server.keepers.adopt(tmp_path / "stays", 1)
            await clean(server, tmp_path / "stays")
    assert not [complaint for complaint in complaints if complaint.category is ResourceWarning]
