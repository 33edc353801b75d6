"""The loop around a place in memory that fails when it is told to."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest

from midflight.backends import loop as loop_module
from midflight.backends.loop import Decide, Loop
from midflight.backends.place import Noted, Step, Tell, Wake, news_of
from midflight.controller.commands import Order, StartInstance
from midflight.controller.events import InstanceNoted, JobDeleted, JobSubmitted
from midflight.controller.orders import Observed
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Job
from midflight.coordinator.client import Dial
from midflight.errors import Unreachable


class MemoryPlace:
    name = "memory"

    def __init__(self) -> None:
        self.cluster = Cluster(placed_elsewhere=True)
        self.gone = self.removed = False  # what the last look has found, and what the next finds
        self.blind = 0  # so many more looks fail
        self.broken: set[str] = set()  # keys of jobs for which nothing can be carried out
        self.looks = 0
        self.done: list[tuple[str, Order]] = []
        self.carried_out: list[str] = []

    async def open(self, tell: Tell, wake: Wake) -> None:
        pass

    def turn(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def observe(self, keys: Collection[str]) -> Sequence[Step] | None:
        self.looks += 1
        if self.blind:
            self.blind -= 1
            raise Unreachable("the API server does not answer")
        self.gone = self.removed
        return None if self.gone else [news_of(key, self.observed) for key in keys]

    def observed(self, job: Job) -> Observed:
        return Observed(0.0)

    async def save(self, cluster: Cluster, records: Sequence[Noted]) -> None:
        self.cluster = cluster

    async def carry_out(self, job: Job, orders: Sequence[Order]) -> None:
        self.carried_out.append(job.key)
        if job.key in self.broken:
            raise Unreachable(f"nothing can be done for {job.key}")
        self.done += [(job.key, order) for order in orders]

    async def remove(self, job: Job) -> None:
        pass

    def due(self) -> float | None:
        return None

    def dial(self, job: Job) -> Dial:
        raise NotImplementedError

    def expects_run(self, job: Job) -> bool:
        return False

    async def close(self) -> None:
        pass

    def started(self, key: str) -> bool:
        return any(of == key and isinstance(order, StartInstance) for of, order in self.done)


def submitted(name: str) -> JobSubmitted:
    return JobSubmitted(1.0, Spec(Kind.ETJOB, name, "true", min_workers=1), f"uid of {name}")


Scenario = Callable[[Loop, MemoryPlace], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> None:
    async def main() -> None:
        place = MemoryPlace()
        loop = Loop(place)
        await loop.start()
        try:
            await asyncio.wait_for(scenario(loop, place), 10)
        finally:
            await loop.close()

    asyncio.run(main())


async def until(there: Callable[[], bool]) -> None:
    while not there():  # noqa: ASYNC110 - the loop tells nobody what it does
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.001)


def test_what_was_told_outlives_a_look_that_fails() -> None:
    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        place.blind = 2
        loop.tell(submitted("bert"))
        await until(lambda: not place.blind)
        await until(lambda: "default/bert" in place.cluster.jobs)

    play(scenario)


def test_who_asks_while_nothing_can_be_seen_is_refused() -> None:
    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        place.blind = 1
        with pytest.raises(Unreachable, match="does not answer"):
            await loop.ask(lambda cluster, now: submitted("bert"))

    play(scenario)


def test_a_job_for_which_nothing_can_be_done_does_not_hold_up_the_others() -> None:
    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        place.broken.add("default/a")
        for name in "abc":
            await loop.ask(lambda cluster, now, name=name: submitted(name))  # type: ignore[misc]
        await until(lambda: place.started("default/b") and place.started("default/c"))
        assert not place.started("default/a")
        place.broken.clear()
        await until(lambda: place.started("default/a"))

    play(scenario)


def test_the_job_of_which_something_is_told_is_looked_at_although_nothing_changes() -> None:
    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        await loop.ask(lambda cluster, now: submitted("bert"))
        place.carried_out.clear()
        loop.tell(InstanceNoted(2.0, "default/bert", "bert-worker-0", "a line for people"))
        await until(lambda: place.carried_out == ["default/bert"])

    play(scenario)


def test_a_loop_ends_with_its_place() -> None:
    async def main() -> None:
        place = MemoryPlace()
        loop = Loop(place)
        running = asyncio.create_task(loop.run())
        await until(lambda: place.looks == 1)
        place.removed = True
        loop.wake("default/bert")
        await asyncio.wait_for(running, 10)
        with pytest.raises(Unreachable, match="ending"):
            await loop.ask(lambda cluster, now: JobDeleted(now, "default/bert"))

    asyncio.run(main())


def test_whoever_shares_the_thread_has_a_turn_within_a_long_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "TURN", -1.0)  # seconds; each step is too long

    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        turns, seen = 0, []

        async def watch() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def decide(name: str) -> Decide:
            def noted(cluster: Cluster, now: float) -> JobSubmitted:
                seen.append(turns)
                return submitted(name)

            return noted

        watching = asyncio.create_task(watch())
        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(loop.ask(decide(name)))
        watching.cancel()
        assert len(set(seen)) == 3, "all three were taken at once"

    play(scenario)


def test_who_asks_in_a_pass_that_is_interrupted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "TURN", -1.0)

    async def scenario(loop: Loop, place: MemoryPlace) -> None:
        reached = asyncio.Event()

        def decide(cluster: Cluster, now: float) -> JobSubmitted:
            reached.set()
            return submitted("a")

        asked = [asyncio.create_task(loop.ask(decide)) for _ in range(3)]
        await reached.wait()
        await loop.close()
        for each in asked:
            with pytest.raises(Unreachable, match="the server is ending"):
                await each

    play(scenario)
