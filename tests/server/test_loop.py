"""The loop around the real controller, with a real journal and the fake machine."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from midflight.backends import loop as loop_module
from midflight.backends.local.journal import Journal
from midflight.backends.local.place import LocalPlace
from midflight.backends.loop import Decide, Loop
from midflight.backends.place import Noted
from midflight.controller.commands import Order, Record
from midflight.controller.events import Event, JobDeleted, JobSubmitted, NodeCordoned
from midflight.controller.handle import handle
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster
from midflight.errors import NotFound, StoreUnavailable, Unreachable
from midflight.server.http_server import Server
from midflight.server.waiters import Waiters
from tests.server.fake_machine import FakeMachine


class CountingJournal(Journal):
    """Counts its transactions, and has a disk that can be full."""

    saves = 0
    full = False

    def save(self, before: Cluster, after: Cluster, records: Sequence[Noted]) -> None:
        if self.full:
            raise StoreUnavailable("the disk is full")
        self.saves += 1
        super().save(before, after, records)


class WatchfulMachine(FakeMachine):
    """Looks into the journal whenever it is told to do something."""

    def __init__(self, home: Path, journal: Journal) -> None:
        super().__init__(home)
        self.journal = journal
        self.unsaved: list[Order] = []

    def carry_out(self, order: Order, cluster: Cluster) -> None:
        if self.journal.load().jobs.keys() != cluster.jobs.keys():
            self.unsaved.append(order)
        super().carry_out(order, cluster)


def submitted(name: str) -> Decide:
    spec = Spec(Kind.ETJOB, name, "python train.py", min_workers=1, max_workers=4)
    return lambda _, now: JobSubmitted(now, spec, f"uid of {name}")


class WaitedFor(Loop):
    waiters: Waiters


def with_loop(
    folder: Path, scenario: Callable[[WaitedFor, CountingJournal, WatchfulMachine], Awaitable[None]]
) -> None:
    async def main() -> None:
        journal = CountingJournal(folder / "journal.db")
        machine = WatchfulMachine(folder, journal)
        waiters = Waiters()
        loop = WaitedFor(LocalPlace(journal, machine), changed=waiters.wake)
        loop.waiters = waiters
        await loop.start()
        try:
            await asyncio.wait_for(scenario(loop, journal, machine), 30)
        finally:
            await loop.close()

    asyncio.run(main())


async def phase(loop: WaitedFor, key: str, wanted: str) -> None:
    while loop.cluster.jobs[key].phase.value != wanted:
        with loop.waiters.change(key) as change:
            await asyncio.wait_for(change, 10)


def test_commands_are_given_only_when_what_led_to_them_is_saved(tmp_path: Path) -> None:
    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        cluster = await loop.ask(submitted("bert"))
        assert "default/bert" in cluster.jobs
        await phase(loop, "default/bert", "RUNNING")
        assert machine.unsaved == []
        assert journal.load().jobs == loop.cluster.jobs

    with_loop(tmp_path, scenario)


def test_what_comes_in_one_turn_is_saved_at_once(tmp_path: Path) -> None:
    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        before = journal.saves
        await asyncio.gather(*(loop.ask(submitted(f"job-{n}")) for n in range(50)))
        assert len(journal.load().jobs) == 50
        assert journal.saves - before <= 3

    with_loop(tmp_path, scenario)


def test_a_refusal_among_others_concerns_nobody_else(tmp_path: Path) -> None:
    def refuse(cluster: Cluster, now: float) -> Event:
        raise NotFound("no such job")

    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        one, two, three = await asyncio.gather(
            loop.ask(submitted("one")),
            loop.ask(refuse),
            loop.ask(submitted("three")),
            return_exceptions=True,
        )
        assert isinstance(two, NotFound)
        assert isinstance(one, Cluster)
        assert isinstance(three, Cluster)
        assert set(loop.cluster.jobs) == {"default/one", "default/three"}

    with_loop(tmp_path, scenario)


def test_on_a_full_disk_callers_are_refused_and_told_events_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.01)

    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        await loop.ask(submitted("bert"))
        await phase(loop, "default/bert", "RUNNING")
        before = loop.cluster
        journal.full = True
        loop.tell(NodeCordoned(loop.clock(), "here"))
        loop.tell(JobDeleted(loop.clock(), "default/bert"))
        with pytest.raises(StoreUnavailable):
            await loop.ask(submitted("gpt"))
        assert loop.cluster is before
        journal.full = False
        while "default/bert" in loop.cluster.jobs:
            with loop.waiters.change("default/bert") as change:
                await asyncio.wait_for(change, 10)
        assert "default/gpt" not in loop.cluster.jobs
        assert loop.cluster.nodes["here"].stage.value == "Ready,SchedulingDisabled"

    with_loop(tmp_path, scenario)


def test_a_bug_in_the_controller_is_logged_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = handle

    def broken(cluster: Cluster, event: Event) -> tuple[Cluster, Sequence[Record]]:
        if isinstance(event, JobSubmitted) and event.spec.name == "bad":
            raise KeyError("bad luck")
        return real(cluster, event)

    monkeypatch.setattr(loop_module, "handle", broken)

    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        bad, good = await asyncio.gather(
            loop.ask(submitted("bad")), loop.ask(submitted("good")), return_exceptions=True
        )
        assert isinstance(bad, KeyError)
        assert isinstance(good, Cluster)
        assert set(loop.cluster.jobs) == {"default/good"}

    with caplog.at_level(logging.ERROR, "midflight.loop"):
        with_loop(tmp_path, scenario)
    assert "JobSubmitted uid='uid of bad' was not handled" in caplog.text


def test_what_cannot_be_written_is_left_out_and_the_rest_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        found = await asyncio.gather(
            *(loop.ask(submitted(name)) for name in ("one", "half\ud800", "two")),
            return_exceptions=True,
        )
        assert [isinstance(one, Cluster) for one in found] == [True, False, True]
        assert set(journal.load().jobs) == {"default/one", "default/two"}

    with_loop(tmp_path, scenario)
    assert "cannot be written" in caplog.text


def test_a_deadline_is_kept_although_nobody_says_anything(tmp_path: Path) -> None:
    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        spec = Spec(Kind.ETJOB, "large", "python train.py", min_workers=1, gpus=99)
        patient = replace(spec, max_wait_time=0.2)
        await loop.ask(lambda _, now: JobSubmitted(now, patient, "1"))
        await phase(loop, "default/large", "MAX_WAIT_TIME_EXCEEDED")

    with_loop(tmp_path, scenario)


def test_a_job_of_a_used_name_has_its_own_events_only(tmp_path: Path) -> None:
    async def scenario(loop: WaitedFor, journal: CountingJournal, machine: WatchfulMachine) -> None:
        spec = Spec(Kind.ETJOB, "large", "python train.py", min_workers=1, gpus=99)
        await loop.ask(lambda _, now: JobSubmitted(now, spec, "1"))
        await asyncio.gather(  # both in one pass
            loop.ask(lambda _, now: JobDeleted(now, spec.key)),
            loop.ask(lambda _, now: JobSubmitted(now, spec, "2")),
        )
        assert loop.cluster.jobs[spec.key].uid == "2"
        reasons = [noted.record.reason for noted in journal.events(spec.key)]
        assert reasons[0] == "Submitted"
        assert not {"Deleting", "Deleted"} & set(reasons)

    with_loop(tmp_path, scenario)


def test_who_waits_when_the_server_ends_is_told() -> None:
    async def main() -> None:
        waiters = Waiters()
        server = Server(lambda *_: None, cut=waiters.close)  # type: ignore[arg-type]
        with waiters.change("default/bert") as change:
            ends = asyncio.create_task(server.main_loop())
            server.end()
            with pytest.raises(Unreachable, match="ending"):
                await asyncio.wait_for(change, 10)
            await ends

    asyncio.run(main())


def test_a_loop_that_has_ended_refuses(tmp_path: Path) -> None:
    async def main() -> None:
        loop = Loop(LocalPlace(Journal(tmp_path / "journal.db"), FakeMachine(tmp_path)))
        await loop.start()
        await loop.close()
        with pytest.raises(Unreachable, match="ending"):
            await loop.ask(submitted("gpt"))

    asyncio.run(main())
