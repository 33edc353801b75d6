"""What both places promise the loop: this machine with real processes, a cluster in memory."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from midflight.backends.local.journal import Journal
from midflight.backends.local.machine import LocalMachine
from midflight.backends.local.place import LocalPlace
from midflight.backends.loop import Draft
from midflight.backends.place import Place
from midflight.controller.commands import StopInstance
from midflight.controller.events import JobSubmitted
from midflight.controller.orders import Condition, orders
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Job
from midflight.kubernetes import names
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.place import KubernetesPlace
from midflight.kubernetes.pods import PodDefaults
from tests.backends.repositories import environment
from tests.kubernetes.operator_in_memory import ApiServer, job

pytestmark = pytest.mark.slow
COMMAND = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


class Site(Protocol):
    """Where a place is; a second one there is that of the next process."""

    def place(self) -> Place: ...


class LocalSite:
    def __init__(self, home: Path) -> None:
        self.home = home

    def place(self) -> Place:
        return LocalPlace(Journal(self.home / "journal.db"), LocalMachine(self.home, environment()))


class DeletingApiServer(ApiServer):
    async def delete(self, kind: str, namespace: str, name: str, grace: int = 0) -> None:
        self.objects.pop((kind, namespace, name), None)


class KubernetesSite:
    def __init__(self) -> None:
        self.api: Any = DeletingApiServer()
        self.api.store(job("default", "demo", 1, COMMAND))

    def place(self) -> Place:
        cache = Cache(self.api, "*", (names.TRAININGJOB,), lambda key: None)
        for obj in list(self.api.objects.values()):
            if obj["kind"] in (names.TRAININGJOB, "Pod"):
                cache.put(obj)

        def executor(tell: Any) -> Executor:
            return Executor(self.api, PodDefaults(key=b"key"), tell, cache.put, cache.clock)

        return KubernetesPlace(cache, executor, (names.TRAININGJOB, "default", "demo"))


@pytest.fixture(params=["local", "kubernetes"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Site]:
    return lambda: LocalSite(tmp_path) if request.param == "local" else KubernetesSite()


class Driver:
    """One pass after another, each step of it by hand."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.woken = asyncio.Event()

    async def open(self) -> "Driver":
        await self.place.open(lambda event: None, lambda key: self.woken.set())
        return self

    @property
    def job(self) -> Job:
        return self.place.cluster.jobs["default/demo"]

    async def decide(self) -> None:
        """Observe and save; a cluster submits its job by itself."""
        steps = await self.place.observe(list(self.place.cluster.jobs))
        draft = Draft(self.place.cluster)
        for step in steps or ():
            draft.take(step(draft.cluster, 1.0))
        if "default/demo" not in draft.cluster.jobs:
            spec = Spec(Kind.ETJOB, "demo", COMMAND, workers=1, min_workers=1)
            draft.take([JobSubmitted(1.0, spec, uuid.uuid4().hex)])
        await self.place.save(draft.cluster, draft.records)

    async def carry_out(self) -> None:
        given: Any = orders(self.job, self.place.observed(self.job))
        await self.place.carry_out(self.job, given)

    def seen(self) -> dict[str, int]:
        found = self.place.observed(self.job).instances
        return {n: s.attempt for n, s in found.items() if s.condition is not Condition.OVER}

    async def stop_all(self) -> None:
        for name, attempt in self.seen().items():
            order = StopInstance(self.job.key, name, attempt, 0.0)
            await self.place.carry_out(self.job, [order, order])


def play(site: Callable[[], Site], scenario: Any) -> None:
    async def main() -> None:
        here = site()
        driver = await Driver(here.place()).open()
        try:
            await driver.decide()
            await asyncio.wait_for(scenario(driver, here), 60)
        finally:
            await driver.stop_all()
            while isinstance(here, LocalSite) and driver.seen():
                driver.woken.clear()
                await asyncio.wait_for(driver.woken.wait(), 30)
            await driver.place.close()

    asyncio.run(main())


def test_what_is_ordered_is_observed_at_once_and_not_ordered_again(
    site: Callable[[], Site],
) -> None:
    async def scenario(driver: Driver, here: Site) -> None:
        await driver.carry_out()
        assert driver.seen() == {"demo-launcher": 1, "demo-worker-0": 1}
        assert not [
            each
            for each in orders(driver.job, driver.place.observed(driver.job))
            if type(each).__name__ in ("StartInstance", "StopInstance")
        ]

    play(site, scenario)


def test_what_was_saved_is_what_the_next_process_reads(site: Callable[[], Site]) -> None:
    async def scenario(driver: Driver, here: Site) -> None:
        saved = driver.job
        if isinstance(here, LocalSite):
            await driver.place.close()
        again = Driver(here.place())
        driver.place = again.place
        await driver.open()
        await driver.place.observe(["default/demo"])
        assert driver.job == saved

    play(site, scenario)


def test_the_next_process_observes_what_a_former_one_has_started(
    site: Callable[[], Site],
) -> None:
    async def scenario(driver: Driver, here: Site) -> None:
        await driver.carry_out()
        if isinstance(here, LocalSite):
            while not all(s.pid for s in driver.place.observed(driver.job).instances.values()):
                driver.woken.clear()
                await driver.woken.wait()
        before = driver.seen()
        await driver.place.close()
        driver.place = here.place()
        await driver.open()
        await driver.place.observe(["default/demo"])
        assert driver.seen() == before

    play(site, scenario)


def test_a_stop_of_what_is_not_there_is_harmless(site: Callable[[], Site]) -> None:
    async def scenario(driver: Driver, here: Site) -> None:
        order = StopInstance(driver.job.key, "demo-worker-0", 1, 0.0)
        await driver.place.carry_out(driver.job, [order, replace(order, force=True)])
        assert driver.seen() == {}

    play(site, scenario)
