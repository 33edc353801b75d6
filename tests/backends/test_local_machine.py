"""This machine with real processes: what orders do, and what is seen of it."""

import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from midflight.backends.local.code_link import working_dir_of
from midflight.backends.local.interface import LogQuery, Machine
from midflight.backends.local.machine import LocalMachine
from midflight.controller.commands import (
    FetchCode,
    StartInstance,
    StopInstance,
    WriteHosts,
)
from midflight.controller.events import (
    CodeFetched,
    CodeNotFetched,
    Event,
    InstanceLost,
    InstanceNoted,
)
from midflight.controller.orders import Condition, Sighting, news
from midflight.controller.spec import Kind, Spec, Sync
from midflight.controller.state import Cluster, Instance, Job, Node, Phase, Role, Stage
from midflight.errors import NotFound, Refused
from tests.backends.repositories import Repository, environment

pytestmark = pytest.mark.slow
E = TypeVar("E", bound=Event)
KEY = "default/demo"
NODES = {"here": Node("here", "127.0.0.1", 4, virtual=True)}
FOREVER = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
RUN = uuid.uuid4().hex  # by a job's uid its processes are found, in the whole machine
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def job_of(command: str, name: str = "demo", attempt: int = 1, **spec: Any) -> Job:
    """One of fixed size, so that the instance runs the command itself."""
    master = Instance(
        f"{name}-master-0",
        Role.MASTER,
        0,
        0,
        0.0,
        node="here",
        attempt=attempt,
        stage=Stage.RUNNING,
    )
    given = Spec(Kind.PYTORCHJOB, name, command, **spec)
    return Job(given, f"uid-{name}-{RUN}", 0.0, 1, instances={master.name: master})


def cluster_of(*jobs: Job) -> Cluster:
    return Cluster(NODES, {job.key: job for job in jobs})


class Scene:
    """A machine, and everything it has told."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.told: list[Event] = []
        self._news = asyncio.Event()
        self.machine = LocalMachine(home, environment())

    async def open(self, *jobs: Job) -> None:
        await self.machine.open(cluster_of(*jobs), self._tell, lambda key: self._news.set())

    def _tell(self, event: Event) -> None:
        self.told.append(event)
        self._news.set()

    async def hears(self, kind: type[E]) -> E:
        """The first event of a kind, and takes it from the list."""
        async with asyncio.timeout(30):
            while True:
                self._news.clear()
                for event in self.told:
                    if isinstance(event, kind):
                        self.told.remove(event)
                        return event
                await self._news.wait()

    async def sees(self, job: Job, condition: Condition) -> Sighting:
        """The job's instance, as soon as it is so."""
        (name,) = job.instances
        async with asyncio.timeout(30):
            while True:
                self._news.clear()
                seen = self.machine.observed(job).instances.get(name)
                if seen is not None and seen.condition is condition:
                    return seen
                await self._news.wait()

    def order_start(self, job: Job) -> None:
        (instance,) = job.instances.values()
        order = StartInstance(job.key, instance.name, instance.attempt)
        self.machine.carry_out(order, cluster_of(job))

    async def start(self, job: Job) -> Sighting:
        """One that runs for longer than it takes to look."""
        self.order_start(job)
        return await self.sees(job, Condition.RUNNING)

    async def finish(self, job: Job) -> Sighting:
        """One that ends by itself."""
        self.order_start(job)
        return await self.sees(job, Condition.OVER)

    def stop(self, job: Job, grace: float) -> None:
        (instance,) = job.instances.values()
        order = StopInstance(job.key, instance.name, instance.attempt, grace)
        self.machine.carry_out(order, cluster_of(job))

    async def log(self, job: Job, text: str) -> str:
        """The log, as soon as it holds the text."""
        async with asyncio.timeout(30):
            while True:
                query = LogQuery()
                pieces = [piece async for piece in self.machine.logs(job, query, lambda: True)]
                if text.encode() in (found := b"".join(pieces)):
                    return found.decode()
                await asyncio.sleep(0.05)

    async def gone(self, path: Path) -> None:
        async with asyncio.timeout(30):
            while os.path.lexists(path):  # noqa: ASYNC110, ASYNC240 - nobody tells of a folder
                await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(home: Path, *jobs: Job) -> AsyncIterator[Scene]:
    scene = Scene(home)
    await scene.open(*jobs)
    try:
        yield scene
    finally:
        await scene.machine.close()


def play(home: Path, act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Whatever happens, nothing of it is left running."""

    async def whole() -> None:
        try:
            async with opened(home) as scene:
                await act(scene)
        finally:
            async with opened(home) as scene:
                for path in (home / "jobs").glob("*/*"):
                    await scene.gone(path)

    asyncio.run(whole())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_it_is_a_machine(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        machine: Machine = scene.machine
        (node,) = machine.nodes()
        assert node.address == "127.0.0.1"
        assert node.gpus >= 1
        assert node.labels == {"kubernetes.io/hostname": node.name}

    play(tmp_path, act)


def test_an_instance_runs_with_its_environment_and_its_end_is_seen(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("echo $RANK/$WORLD_SIZE $MIDFLIGHT_INSTANCE $PWD; exit 3")
        ended = await scene.finish(job)
        assert (ended.attempt, ended.code) == (1, 3)
        assert ended.pid > 1
        assert ended.ended_at is not None
        assert abs(ended.ended_at - time.time()) < 30
        folder = scene.machine.folder(job)
        assert folder == str(tmp_path / "jobs" / "default" / "demo")
        assert await scene.log(job, "0/1") == f"0/1 demo-master-0 {folder}/work\n"

    play(tmp_path, act)


def test_a_start_that_is_given_twice_starts_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("echo once")
        await scene.finish(job)
        again = await scene.finish(job)
        assert (again.attempt, again.code) == (1, 0)
        assert await scene.log(job, "once") == "once\n"

    play(tmp_path, act)


def test_a_working_directory_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("true", working_dir=str(tmp_path / "nowhere"))
        seen = await scene.finish(job)
        assert seen.code is None
        assert "nowhere" in seen.reason

    play(tmp_path, act)


def test_an_instance_that_is_stopped_ends_in_good_order(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of(FOREVER)
        started = await scene.start(job)
        await scene.log(job, "up")
        scene.stop(job, 20.0)
        assert (await scene.sees(job, Condition.OVER)).code == 0
        assert not alive(started.pid)

    play(tmp_path, act)


def test_one_that_does_not_end_is_killed_after_its_grace(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of(STUBBORN)
        await scene.start(job)
        await scene.log(job, "up")
        scene.stop(job, 0.3)
        assert (await scene.sees(job, Condition.OVER)).code == -signal.SIGKILL

    play(tmp_path, act)


def test_a_new_machine_finds_what_runs_and_what_has_ended(tmp_path: Path) -> None:
    lasting, short = job_of(FOREVER), job_of("exit 4", name="short")
    lost = job_of("true", name="lost")

    async def act(first: Scene) -> None:
        started = await first.start(lasting)
        await first.finish(short)
        await first.machine.close()
        async with opened(tmp_path, lasting, short, lost) as second:
            assert (await second.sees(lasting, Condition.RUNNING)).pid == started.pid
            assert (await second.sees(short, Condition.OVER)).code == 4
            (gone,) = news(lost, second.machine.observed(lost))
            assert isinstance(gone, InstanceLost)
            assert "nothing is known" in gone.reason
            second.stop(lasting, 20.0)
            await second.sees(lasting, Condition.OVER)

    play(tmp_path, act)


def test_what_is_in_no_job_any_more_is_ended_and_removed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        started = await scene.start(job_of(STUBBORN))
        async with opened(tmp_path) as second:
            await second.gone(tmp_path / "jobs" / "default")
        assert not alive(started.pid)

    play(tmp_path, act)


def test_an_instance_that_should_have_ended_is_seen_by_the_next_server(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of(FOREVER)
        await scene.start(job)
        name, instance = next(iter(job.instances.items()))
        ended = replace(job, instances={name: replace(instance, stage=Stage.ERROR)})
        async with opened(tmp_path, ended) as second:
            await second.sees(ended, Condition.RUNNING)
            second.stop(ended, 0.0)
            await second.sees(job, Condition.OVER)

    play(tmp_path, act)


def test_removing_a_job_removes_its_folder_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.finish(job_of("echo first"))
        scene.machine.remove(KEY, Cluster(NODES))
        again = replace(job_of("echo second"), uid="another")
        assert (await scene.finish(again)).code == 0  # at once: it waits for the removal
        assert await scene.log(again, "second") == "second\n"

    play(tmp_path, act)


def test_a_folder_of_an_earlier_job_of_that_name_is_cleared_first(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        started = await scene.start(job_of(STUBBORN))
        again = replace(job_of("echo second"), uid="another")
        async with opened(tmp_path, again) as second:
            assert not second.machine.observed(again).instances
            assert (await second.finish(again)).code == 0
            assert not alive(started.pid)
            assert await second.log(again, "second") == "second\n"

    play(tmp_path, act)


def test_hosts_are_written_for_discovery(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("cat $MIDFLIGHT_HOSTFILE; discover_hosts.sh")
        scene.machine.carry_out(WriteHosts(KEY, {"demo-worker-0": 2}), cluster_of(job))
        assert scene.machine.observed(job).hosts == {"demo-worker-0": 2}
        await scene.finish(job)
        assert await scene.log(job, "demo") == "demo-worker-0:2\ndemo-worker-0:2\n"

    play(tmp_path, act)


def test_a_limit_that_is_not_kept_is_noted(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.finish(job_of("ulimit -d", memory="4Gi"))
        notes = [event.line for event in scene.told if isinstance(event, InstanceNoted)]
        assert all("--memory 4Gi" in note for note in notes)

    play(tmp_path, act)


# --- code ---------------------------------------------------------------------------------------


def test_code_is_fetched_and_shown_and_goes_with_its_job(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "sources" / "repo.git")
    commit = repository.commit("print('trained')")
    work = tmp_path / "work"
    work.mkdir()

    async def act(scene: Scene) -> None:
        job = job_of(
            "cat code/repo/train.py",
            working_dir=str(work),
            sync=Sync("git", repository.url),
        )
        scene.machine.carry_out(FetchCode(KEY), cluster_of(job))
        assert scene.machine.observed(job).fetching
        assert (await scene.hears(CodeFetched)).commit == commit
        await scene.finish(job)
        assert await scene.log(job, "trained") == "print('trained')\n"
        scene.machine.remove(KEY, Cluster(NODES))
        await scene.gone(Path(scene.machine.folder(job)))
        assert list(work.iterdir()) == []

    play(tmp_path, act)


def test_jobs_that_share_a_working_directory_share_the_same_commit_only(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "sources" / "repo.git")
    repository.commit("first")
    work = tmp_path / "work"
    work.mkdir()
    shown = work / "code" / "repo" / "train.py"
    options: dict[str, Any] = {"working_dir": str(work), "sync": Sync("git", repository.url)}

    async def act(scene: Scene) -> None:
        one, two, three = (job_of("true", name=name, **options) for name in ("one", "two", "three"))
        everyone = cluster_of(one, two, three)
        for job in (one, two):
            scene.machine.carry_out(FetchCode(job.key), everyone)
            await scene.hears(CodeFetched)
        repository.commit("second")
        scene.machine.carry_out(FetchCode(three.key), everyone)
        refused = await scene.hears(CodeNotFetched)
        assert "belongs to the job default/one" in refused.reason
        scene.machine.remove(one.key, cluster_of(two, three))
        await scene.gone(Path(scene.machine.folder(one)))
        assert shown.read_text() == "first"
        assert working_dir_of(Path(scene.machine.folder(two))) == work
        done = cluster_of(replace(two, phase=Phase.SUCCEEDED), three)
        scene.machine.carry_out(FetchCode(three.key), done)
        await scene.hears(CodeFetched)
        assert shown.read_text() == "second"

    play(tmp_path, act)


def test_a_source_that_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("true", sync=Sync("git", f"file://{tmp_path}/nothing.git"))
        scene.machine.carry_out(FetchCode(KEY), cluster_of(job))
        assert "git could not fetch" in (await scene.hears(CodeNotFetched)).reason

    play(tmp_path, act)


# --- chaos --------------------------------------------------------------------------------------


def test_a_rehearsed_kill_is_seen_like_a_real_one(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of(FOREVER)
        await scene.start(job)
        scene.machine.chaos(job, "kill", "demo-master-0")
        assert (await scene.sees(job, Condition.OVER)).code == -signal.SIGKILL
        with pytest.raises(Refused, match="does not run"):
            scene.machine.chaos(job, "kill", "demo-master-0")

    play(tmp_path, act)


def test_a_stopped_instance_stands_still_until_it_may_go_on(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        pids = tmp_path / "pids"
        job = job_of(f"setsid sh -c 'echo $$ > {pids}; echo up; sleep 600' & wait")
        started = await scene.start(job)
        await scene.log(job, "up")
        other = int(pids.read_text())
        scene.machine.chaos(job, "stop", "demo-master-0")
        await _until(lambda: _stopped(started.pid) and _stopped(other))
        scene.machine.chaos(job, "cont", "demo-master-0")
        await _until(lambda: not _stopped(started.pid) and not _stopped(other))
        scene.stop(job, 0.0)
        await scene.sees(job, Condition.OVER)
        assert not alive(other)

    play(tmp_path, act)


def test_what_cannot_be_rehearsed_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job = job_of("true")
        with pytest.raises(Refused, match="demo-master-0 does not run"):
            scene.machine.chaos(job, "cut", "demo-master-0")
        with pytest.raises(NotFound, match="demo-master-0"):
            scene.machine.chaos(job, "kill", "demo-worker-7")

    play(tmp_path, act)


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def _until(reached: Callable[[], bool]) -> None:
    """A signal takes its moment, and nobody tells when it has arrived."""
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


def test_an_order_about_nothing_known_raises_nothing(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.machine.carry_out(StartInstance("default/none", "x", 1), Cluster(NODES))
        job = job_of("true")
        scene.machine.carry_out(StartInstance(KEY, "demo-master-0", 1), cluster_of())
        assert scene.machine.observed(job).instances == {}
        assert os.listdir(tmp_path) == []

    play(tmp_path, act)
