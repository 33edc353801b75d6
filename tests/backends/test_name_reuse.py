"""A job that is deleted and submitted again under its name; keepers and code are fakes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from midflight.backends.local import code, machine
from midflight.backends.local.folder import JobFolder
from midflight.backends.local.machine import LocalMachine
from midflight.backends.local.reports import Ended, Outcome
from midflight.controller.commands import FetchCode, StartInstance, StopInstance, WriteHosts
from midflight.controller.orders import Condition, Sighting
from midflight.controller.spec import Kind, Spec, Sync
from midflight.controller.state import Cluster, Instance, Job, Node, Role, Stage

NAME = "demo-master-0"
NODES = {"here": Node("here", "127.0.0.1", 4, virtual=True)}
DONE = Ended(1, 0, "", 5.0, 77, 4.0)


class Keepers:
    """Everything ends at once; what became of an attempt is said when the test allows it."""

    def __init__(self, tell: Callable[[str, Ended], None]) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.found: Outcome | None = DONE

    async def start(self, folder: Path, plan: Mapping[str, Any]) -> Outcome:
        return replace(DONE, attempt=plan["attempt"])

    async def adopt(self, folder: Path, attempt: int) -> Outcome | None:
        self.asked.set()
        await self.answer.wait()
        return self.found

    async def stop(self, folder: Path, grace: float) -> bool:
        return False

    def close(self) -> None:
        pass


def job_of(uid: str, attempt: int = 1, **more: Any) -> Job:
    master = Instance(NAME, Role.MASTER, 0, 0, 0.0, Stage.STARTING, node="here", attempt=attempt)
    return Job(Spec(Kind.PYTORCHJOB, "demo", "true", **more), uid, 0.0, 1, instances={NAME: master})


OLD, NEW = job_of("old"), job_of("new")
KEY = OLD.key


class Scene:
    def __init__(self, made: LocalMachine, keepers: Keepers) -> None:
        self.machine = made
        self.keepers = keepers
        self.woken = asyncio.Event()

    def order(self, order: Any, job: Job) -> None:
        self.machine.carry_out(order, Cluster(NODES, {job.key: job}))

    def sees(self, job: Job) -> Sighting | None:
        return self.machine.observed(job).instances.get(NAME)

    async def until(self, there: Callable[[], bool]) -> None:
        while not there():
            self.woken.clear()
            await self.woken.wait()


@pytest.fixture
def play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]:
    made: list[Keepers] = []

    def keepers(tell: Callable[[str, Ended], None]) -> Keepers:
        made.append(Keepers(tell))
        return made[0]

    monkeypatch.setattr(machine, "Keepers", keepers)

    def play(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            found = LocalMachine(tmp_path, {})
            scene = Scene(found, made[0])
            await found.open(Cluster(), lambda event: None, lambda key: scene.woken.set())
            try:
                await asyncio.wait_for(act(scene), 10)
            finally:
                await found.close()

        asyncio.run(main())

    return play


Play = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


def test_the_end_of_a_job_is_not_seen_of_the_next_one_of_its_name(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.order(StartInstance(KEY, NAME, 1), OLD)
        await scene.until(lambda: scene.sees(OLD).condition is Condition.OVER)  # type: ignore[union-attr]
        assert scene.sees(NEW) is None  # one pass may delete the one and accept the other

    play(act)


def test_what_is_heard_late_of_a_job_is_not_said_of_the_next_one_of_its_name(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.order(StartInstance(KEY, NAME, 1), OLD)
        scene.order(StopInstance(KEY, NAME, 1, 0.0), OLD)
        await scene.keepers.asked.wait()
        scene.machine.remove(KEY, Cluster(NODES))
        scene.order(StartInstance(KEY, NAME, 2), job_of("new", 2))
        scene.keepers.found = replace(DONE, attempt=2)
        before = scene.sees(job_of("new", 2))
        scene.keepers.answer.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert before == scene.sees(job_of("new", 2)) == Sighting(2, Condition.WAITING)

    play(act)


def test_an_attempt_that_nobody_has_made_says_nothing_of_the_next_one(play: Play) -> None:
    async def act(scene: Scene) -> None:
        scene.keepers.found = None
        scene.order(StartInstance(KEY, NAME, 1), OLD)
        scene.order(StopInstance(KEY, NAME, 1, 0.0), OLD)
        await scene.keepers.asked.wait()
        scene.order(StartInstance(KEY, NAME, 2), job_of("old", 2))
        scene.keepers.answer.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scene.sees(job_of("old", 2)) == Sighting(2, Condition.WAITING)

    play(act)


def test_code_that_is_fetched_for_a_job_is_not_waited_for_by_the_next_one_of_its_name(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def fetch(*_: object) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # git takes its time to end
        return ""

    monkeypatch.setattr(code, "fetch", fetch)
    sync: dict[str, Any] = {"sync": Sync("git", "file:///nowhere")}
    old, new = job_of("old", **sync), job_of("new", **sync)

    async def act(scene: Scene) -> None:
        scene.order(FetchCode(KEY), old)
        await begun.wait()
        assert scene.machine.observed(old).fetching
        scene.machine.remove(KEY, Cluster(NODES))
        assert not scene.machine.observed(new).fetching  # nobody would say when it has ended

    play(act)


def test_a_hostfile_that_cannot_be_written_is_ordered_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(JobFolder, "write_hosts", full)
    monkeypatch.setattr(machine, "HOSTS_AGAIN", 0.0, raising=False)

    async def act(scene: Scene) -> None:
        scene.order(WriteHosts(KEY, {NAME: 1}), OLD)
        await scene.until(lambda: scene.machine.observed(OLD).hosts is None)

    play(act)
