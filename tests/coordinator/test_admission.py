"""Strangers that fill the door: bounded, soon gone, and seldom spoken of."""

import asyncio
import contextlib
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight.coordinator import admission
from midflight.coordinator.admission import (
    HONEST_SECONDS,
    MOST_STRANGERS,
    SAID_AT_ONCE,
    Strangers,
    Throttle,
    most_strangers,
)
from midflight.errors import MidflightError
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Status, StatusRequested
from midflight.protocol.wire import dial_blocking
from midflight.rundir import RunDir
from tests.coordinator.served import served

DESCRIPTORS = 64


def test_there_is_a_cap_for_each_address_and_one_in_all() -> None:
    strangers = Strangers(4)
    admitted = [strangers.admit("a", 0.0, lambda: None) for _ in range(3)]
    assert [it is not None for it in admitted] == [True, True, False]
    assert strangers.admit("b", 0.0, lambda: None) is not None
    assert strangers.admit("c", 0.0, lambda: None) is not None
    assert strangers.admit("d", 0.0, lambda: None) is None


def test_at_the_cap_the_one_who_waited_longest_makes_room() -> None:
    dropped: list[str] = []
    strangers = Strangers(2)
    strangers.admit("a", 0.0, lambda: dropped.append("a"))
    strangers.admit("b", 0.5, lambda: dropped.append("b"))
    assert strangers.admit("c", HONEST_SECONDS + 0.1, lambda: None) is not None
    assert dropped == ["a"]


def test_a_crowd_from_one_address_makes_room_among_itself() -> None:
    dropped: list[str] = []
    strangers = Strangers(4)
    strangers.admit("other", 0.0, lambda: dropped.append("other"))
    strangers.admit("a", 0.1, lambda: dropped.append("a"))
    strangers.admit("a", 0.2, lambda: None)
    assert strangers.admit("a", 5.0, lambda: None) is not None
    assert dropped == ["a"]


def test_who_has_shown_the_token_is_no_stranger() -> None:
    strangers = Strangers(2)
    for _ in range(10):
        friend = strangers.admit("a", 0.0, lambda: None)
        assert friend is not None
        strangers.leave(friend)


def test_a_thousand_refusals_are_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WINDOW", 0.05)
    lines: list[str] = []

    async def story() -> None:
        throttle = Throttle(lambda line, level: lines.append(line))
        for number in range(1000):
            throttle.say(f"refused {number}", "warning")
        async with asyncio.timeout(5):
            while len(lines) <= SAID_AT_ONCE:  # noqa: ASYNC110 - a line rings no bell
                await asyncio.sleep(0.01)

    asyncio.run(story())
    assert lines[-1] == f"refused {1000 - SAID_AT_ONCE} more connections within 0.05 s"
    assert len(lines) == SAID_AT_ONCE + 1


def test_idle_strangers_at_the_door_do_not_keep_a_friend_out() -> None:
    async def story() -> None:
        async with served() as it:
            it.door.strangers = Strangers(4)
            idle = [await it.open() for _ in range(20)]
            async with asyncio.timeout(10):
                while not await _answers(it.answers):  # noqa: ASYNC110 - it dials again
                    await asyncio.sleep(0.1)
            for _, writer in idle:
                writer.close()

    asyncio.run(story())


async def _answers(ask: object) -> bool:
    try:
        return bool(await ask())  # type: ignore[operator]
    except (MidflightError, OSError):
        return False


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[tuple[RunDir, Path]]:
    """A real one, with few descriptors; what it says is in a file."""
    folder = RunDir(tmp_path / "run")
    folder.create()
    folder.make_token()
    folder.write_spec(JobSpec("job", ("sh",), 1, 1, 1))
    words = ["--run-dir", str(folder.path), "--listen", "127.0.0.1:0", "--store", folder.store_url]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "midflight.coordinator", *words],
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS,) * 2),
        )
        deadline = time.monotonic() + 20
        while folder.read_address() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        yield folder, tmp_path / "log"
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_more_connections_than_descriptors_neither_fill_the_log_nor_stop_the_job(
    coordinator: tuple[RunDir, Path],
) -> None:
    folder, log = coordinator
    host, _, port = (folder.read_address() or "").rpartition(":")
    idle = []
    for _ in range(5 * DESCRIPTORS):
        with contextlib.suppress(OSError):
            idle.append(socket.create_connection((host, int(port)), timeout=1.0))
    answer: object = None
    deadline = time.monotonic() + 15
    while not isinstance(answer, Status) and time.monotonic() < deadline:
        with contextlib.suppress(MidflightError, OSError):
            wire = dial_blocking(f"{host}:{port}", "client", "", folder.read_token(), 3.0)
            wire.send(StatusRequested())
            answer = wire.receive()
            wire.close()
    for sock in idle:
        sock.close()
    assert isinstance(answer, Status)
    assert len(log.read_text().splitlines()) < 60


@pytest.mark.parametrize(("members", "most"), [(8, MOST_STRANGERS), (4000, 4000)])
def test_all_members_of_a_large_job_may_dial_at_once(
    members: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 16, 1 << 16))
    assert most_strangers(members) == most
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert most_strangers(members) == 256
