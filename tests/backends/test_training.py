"""Asking a run's coordinator, played by a fake on a real socket that follows a script."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from midflight.backends.training import NO_TRAINING, Questions, resize, status
from midflight.controller.commands import AskResize
from midflight.controller.events import Event, ResizeEnded
from midflight.coordinator import client
from midflight.coordinator.client import CoordinatorClient, Dial, Patience
from midflight.coordinator.core.state import Phase, initial
from midflight.coordinator.saved_state import Saving
from midflight.errors import ConnectionLost, Unreachable
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import (
    MemberStatus,
    Progress,
    RequestEnded,
    ResizeRequested,
    Status,
    StatusRequested,
)
from midflight.protocol.wire import AsyncWire, accept
from midflight.run.dial import call_async, call_or_tell_end
from midflight.rundir import RunDir
from midflight.store.urls import open_store
from tests.simulation.loop import SimLoop

MEMBERS = (
    MemberStatus("m1", 0, "demo-worker-0", 11, 5, "active"),
    MemberStatus("m2", 1, "demo-worker-1", 12, 5, "active"),
    MemberStatus("m3", 2, "demo-worker-1", 13, 5, "active"),
    MemberStatus("m4", None, "demo-worker-2", 14, 0, "starting"),
)
STATUS = Status("demo", "stable", "", 1, 5, 3, 1, 9, 0, MEMBERS, ())
DONE = RequestEnded(True, "resized from 3 to 4 members at step 9 (generation 2)")
Call = list[object]  # what is said to one request for a resize; nothing: the connection is cut


class FakeCoordinator:
    """Answers every StatusRequested, and each resize with the next call of its script."""

    def __init__(self, folder: RunDir, script: list[Call]) -> None:
        self.folder = folder
        self.script = script
        self.heard: list[ResizeRequested] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = AsyncWire(reader, writer)
        await accept(wire, self.folder.read_token())
        try:
            while isinstance(message := await wire.receive(), StatusRequested):
                wire.send(STATUS)
            assert isinstance(message, ResizeRequested)
            self.heard.append(message)
            for answer in self.script.pop(0):
                wire.send(answer)
            await wire.flush()
        except ConnectionLost:
            pass
        finally:
            wire.close()


def new_run(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "run")
    folder.create()
    return folder


@asynccontextmanager
async def coordinator(folder: RunDir, *script: Call) -> AsyncIterator[FakeCoordinator]:
    folder.make_token()
    folder.write_spec(JobSpec("demo", ("sh",), 1, 1, 9))
    fake = FakeCoordinator(folder, list(script))
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    try:
        folder.write_address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield fake
    finally:
        server.close()


def size(members: int | None, timeout: float = 20) -> AskResize:
    return AskResize("default/demo", "demo-1", members, (), timeout, "demo-1 4")


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await scene()

    asyncio.run(limited())


def test_a_size_is_asked_for_and_progress_is_passed_on(tmp_path: Path) -> None:
    folder, lines = new_run(tmp_path), list[str]()

    async def scene() -> None:
        async with coordinator(folder, [Progress("preparing 4 members"), DONE]) as fake:
            ok, detail = await resize(partial(call_async, folder), size(4, 20), lines.append)
        assert (ok, detail) == (True, DONE.detail)
        (request,) = fake.heard
        assert (request.to, request.names) == (4, ())
        assert 15 < request.timeout <= 20

    play(scene)
    assert lines == ["preparing 4 members"]


def test_a_refusal_is_passed_on(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        refusal = RequestEnded(False, "12 members would be more than --max-np 9")
        async with coordinator(folder, [refusal]):
            assert await resize(partial(call_async, folder), size(12, 20), print) == (
                False,
                refusal.detail,
            )

    play(scene)


def test_the_workers_that_leave_are_named(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        async with coordinator(folder, [DONE]) as fake:
            leaving = replace(size(None), leaving=("demo-worker-1", "demo-worker-2"))
            ok, _ = await resize(partial(call_async, folder), leaving, print)
        assert ok
        (request,) = fake.heard
        assert (request.to, request.hosts) == (None, ("demo-worker-1", "demo-worker-2"))

    play(scene)


def test_a_lost_connection_is_asked_again_with_what_is_left_of_the_time(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        async with coordinator(folder, [], [Progress("preparing")], [DONE]) as fake:
            assert await resize(partial(call_async, folder), size(4, 20), print) == (
                True,
                DONE.detail,
            )
        assert [request.to for request in fake.heard] == [4, 4, 4]
        assert len({request.id for request in fake.heard}) == 1, "it is one request"
        assert fake.heard[2].timeout < fake.heard[0].timeout

    play(scene)


def test_a_run_that_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        asking = asyncio.create_task(resize(partial(call_async, folder), size(4, 20), print))
        await asyncio.sleep(0)
        async with coordinator(folder, [DONE]):
            assert await asking == (True, DONE.detail)

    play(scene)


def test_a_run_that_never_comes_up_is_told_when_the_time_is_over(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        ok, detail = await resize(partial(call_async, folder), size(4, 0.3), print)
        assert not ok
        assert "could not be asked within 0.3 s" in detail

    play(scene)


def test_a_port_that_belongs_to_another_run_by_now_is_not_mistaken(tmp_path: Path) -> None:
    folder, other = new_run(tmp_path), new_run(tmp_path / "other")

    async def scene() -> None:
        async with coordinator(other, [DONE]):
            folder.make_token()
            folder.write_address(other.read_address() or "")
            ok, detail = await resize(partial(call_async, folder), size(4, 0.3), print)
        assert not ok
        assert "token" in detail

    play(scene)


def test_a_question_that_was_asked_before_is_asked_until_it_is_answered(tmp_path: Path) -> None:
    """Its time is over, but a switch may have begun: only the coordinator knows."""
    folder = new_run(tmp_path)

    async def scene() -> None:
        again = replace(size(4, 0.0), request="scale-1", again=True)
        asking = asyncio.create_task(resize(partial(call_async, folder), again, print))
        await asyncio.sleep(0.5)
        async with coordinator(folder, [Progress("switching")], [DONE]) as fake:
            assert await asking == (True, DONE.detail)
        assert [(request.id, request.timeout) for request in fake.heard] == [("scale-1", 0.0)] * 2

    play(scene)


class FakeWire:
    """A wire on which the coordinator says one thing, and hangs up."""

    def __init__(self, *words: object) -> None:
        self._words = list(words)

    def send(self, message: object) -> None:
        pass

    async def receive(self) -> object:
        if not self._words:
            raise ConnectionLost("gone")
        return self._words.pop(0)

    def close(self) -> None:
        pass


DAY = 24 * 3600.0


def away(loop: SimLoop, until: float, *said_before: object) -> Dial:
    """A coordinator that hears the request, is away until then, and says that it is done."""
    wires = [FakeWire(*said_before)]

    async def dial() -> AsyncWire:
        if wires:
            return cast(AsyncWire, wires.pop())
        if loop.time() < until:
            raise Unreachable("nobody answers")
        return cast(AsyncWire, FakeWire(DONE))

    return dial


@pytest.mark.parametrize("said", [(), (Progress("switching"),)])
def test_once_asked_the_coordinators_answer_alone_decides_however_long_it_is_away(
    said: Call,
) -> None:
    loop = SimLoop()
    began = loop.time()
    try:
        asking = resize(away(loop, began + 3 * DAY, *said), size(4, 20), lambda line: None)
        assert loop.run_until_complete(asking) == (True, DONE.detail)
        assert 3 * DAY <= loop.time() - began < 3 * DAY + 5, "it was not asked again soon enough"
        assert loop.events < 10 * DAY, "nor all the time"
    finally:
        loop.end()


def test_a_person_who_waits_is_told_that_the_change_may_still_be_made() -> None:
    loop = SimLoop()
    try:
        client = CoordinatorClient(away(loop, loop.time() + DAY))
        asking = client.resize(ResizeRequested(4, 0, 0, (), 20), patience=Patience(5.0, 60.0))
        with pytest.raises(Unreachable, match="it may still be made"):
            loop.run_until_complete(asking)
    finally:
        loop.end()


def test_a_run_whose_end_was_saved_without_an_answer_is_not_waited_for(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        async with coordinator(folder, [Progress("switching")]) as fake:
            asking = asyncio.create_task(
                resize(partial(call_or_tell_end, folder), size(4, 20), lambda line: None)
            )
            while not fake.heard:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
            save_end(folder)
        ok, detail = await asking
        assert not ok
        assert "the run is over (succeeded)" in detail

    play(scene)


def test_a_run_that_starts_again_is_waited_for_though_the_one_before_has_ended(
    tmp_path: Path,
) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        folder.make_token()
        folder.write_spec(JobSpec("demo", ("sh",), 1, 1, 9))
        save_end(folder)
        asking = asyncio.create_task(
            resize(partial(call_or_tell_end, folder), size(4, 20), lambda line: None)
        )
        await asyncio.sleep(0)
        async with coordinator(folder, [DONE]):
            assert await asking == (True, DONE.detail)

    play(scene)


def save_end(folder: RunDir) -> None:
    spec = folder.read_spec()
    with open_store(folder.store_url) as store:
        saving = Saving(store, spec.name, folder.read_token())
        saving.save(replace(initial(spec, 0.0), phase=Phase.SUCCEEDED), 0.0)


def test_a_coordinator_that_says_nothing_is_dialled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path)
    monkeypatch.setattr(client, "CLIENT_SILENCE", 0.2)
    calls = []

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(await accept(AsyncWire(reader, writer), folder.read_token()))
        await reader.read()
        writer.close()

    async def scene() -> None:
        folder.make_token()
        server = await asyncio.start_server(never, "127.0.0.1", 0)
        folder.write_address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        asking = CoordinatorClient(partial(call_async, folder))
        with pytest.raises(Unreachable, match="it may still be made"):
            await asking.resize(ResizeRequested(4, 0, 0, (), 0.2), patience=Patience(1.0, 0.5))
        server.close()
        assert len(calls) > 1

    play(scene)


def test_a_command_that_starts_no_run_is_answered_for_at_once(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        found = await resize(
            partial(call_async, folder), size(4, 20), print, run_expected=folder.has_spec
        )
        assert found == (True, NO_TRAINING)

    play(scene)


def test_a_run_that_nobody_expected_is_asked_all_the_same(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        async with coordinator(folder, [DONE]) as fake:
            found = await resize(
                partial(call_async, folder), size(4, 20), print, run_expected=folder.has_spec
            )
        assert found == (True, DONE.detail)
        assert len(fake.heard) == 1

    play(scene)


def test_torchruns_are_asked_for_a_size_though_no_run_is_expected_and_leave_by_themselves(
    tmp_path: Path,
) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        async with coordinator(folder, [DONE]) as fake:
            dial = partial(call_async, folder)
            assert await resize(dial, size(4, 20), print, False) == (True, DONE.detail)
            leaving = replace(size(4, 20), members=None, leaving=("demo-worker-1",))
            assert await resize(dial, leaving, print, False) == (True, NO_TRAINING)
        assert len(fake.heard) == 1

    play(scene)


def test_the_status_is_what_the_coordinator_says_or_none(tmp_path: Path) -> None:
    folder = new_run(tmp_path)

    async def scene() -> None:
        assert await status(partial(call_async, folder)) is None
        async with coordinator(folder):
            assert await status(partial(call_async, folder)) == STATUS
        assert await status(partial(call_async, folder)) is None

    play(scene)


def test_a_request_is_asked_once_and_its_answer_is_told(tmp_path: Path) -> None:
    folder, told = new_run(tmp_path), asyncio.Queue[Event]()

    async def scene() -> None:
        questions = Questions(told.put_nowait, lambda: 1000.0)
        questions.ask(size(4), partial(call_async, folder), False)
        assert size(4).request in questions.of("default/demo")
        answer = ResizeEnded(1000.0, "default/demo", "demo-1", True, NO_TRAINING)
        assert await told.get() == answer
        assert size(4).request in questions.of("default/demo"), "until the job has heard of it"
        questions.drop("default/demo")
        assert size(4).request not in questions.of("default/demo")

    play(scene)
