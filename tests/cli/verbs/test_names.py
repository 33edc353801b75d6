"""`status`, `audit` and `resize` mean the same training by a name, and say which one it is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from midflight.protocol.job import JobSpec
from midflight.protocol.messages import RequestEnded, ResizeRequested, Status
from midflight.rundir import RunDir
from tests.cli import canned
from tests.cli.fake_coordinator import FakeCoordinator
from tests.cli.fake_server import FakeServer
from tests.cli.program import Arena

Coordinator = Callable[..., FakeCoordinator]
LEDGER = (
    '{"step":0,"epoch":0,"start":0,"stop":%d,"generation":1,"rank":0,"size":1,"own":%d,"crc":0}\n'
)


def status(detail: str, phase: str = "stable") -> Status:
    return Status("mine", phase, detail, 1, 5, 1, 1, 4, 0, (), ())


@pytest.fixture
def coordinator(fake: FakeServer) -> Iterator[Coordinator]:
    made: list[FakeCoordinator] = []

    def make(*answers: object, job_in: str | None = None) -> FakeCoordinator:
        made.append(FakeCoordinator(fake.home, "mine", answers, job_in))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ended_run(fake: FakeServer) -> RunDir:
    """A run of that name whose coordinator is gone; its ledger has one sample."""
    folder = RunDir.of("mine", {"MIDFLIGHT_HOME": str(fake.home)})
    folder.create()
    folder.make_token()
    folder.write_spec(JobSpec("mine", ("sh",), 1, 1, 1, ledger=str(folder.ledgers)))
    folder.write_address("127.0.0.1:9")
    (folder.ledgers / "m0.jsonl").write_text(LEDGER % (1, 1))
    return folder


def add_ledger(home: Path, namespace: str, samples: int) -> None:
    folder = home / "jobs" / namespace / "mine" / "run" / "ledgers"
    (folder / "m0.jsonl").write_text(LEDGER % (samples, samples))


def test_a_job_that_trains_wins_over_a_run_that_has_ended(
    fake: FakeServer, arena: Arena, ended_run: RunDir, coordinator: Coordinator
) -> None:
    fake.jobs.append(canned.job("mine"))
    coordinator(status("of the job"), job_in="default")
    add_ledger(fake.home, "default", 7)
    shown = arena("status", "mine")
    assert "detail:     of the job" in shown.out
    said = "mine means the job mine in namespace default; there is also the run mine"
    assert said in shown.err
    assert "7 samples in 1 step" in arena("audit", "mine").out
    fake.operations += [canned.operation(progress="succeeded", message="")]
    done = arena("resize", "mine", "--to", "4", "--no-wait")
    assert (done.code, said in done.err) == (0, True)
    assert fake.asked("POST", "/jobs/default/mine/scale")


def test_a_run_that_trains_wins_over_a_job_that_has_ended(
    fake: FakeServer, arena: Arena, coordinator: Coordinator
) -> None:
    coordinator(status("of the job", "succeeded"), job_in="default").close()
    add_ledger(fake.home, "default", 7)
    run = coordinator(status("of the run"))
    shown = arena("status", "mine")
    assert "detail:     of the run" in shown.out
    assert "mine means the run mine; there is also the job mine in namespace default" in shown.err
    run.hears()
    assert fake.asked("POST", "/jobs/default/mine/scale") == []


def test_a_namespace_means_the_job_in_it(
    fake: FakeServer, arena: Arena, coordinator: Coordinator
) -> None:
    coordinator(status("of the run"))
    coordinator(status("in default"), job_in="default")
    coordinator(status("in team"), job_in="team")
    add_ledger(fake.home, "team", 9)
    shown = arena("status", "mine", "-n", "team")
    assert "detail:     in team" in shown.out
    assert "there is also" not in shown.err
    assert "9 samples in 1 step" in arena("audit", "mine", "-n", "team").out
    fake.jobs.append(canned.job("mine", namespace="team"))
    fake.operations += [canned.operation(progress="succeeded")]
    assert arena("resize", "mine", "-n", "team", "--to", "4", "--no-wait").code == 0
    assert fake.asked("POST", "/jobs/team/mine/scale")


def test_a_job_that_has_yet_to_train_is_resized_and_has_no_status(
    fake: FakeServer, arena: Arena, ended_run: RunDir
) -> None:
    fake.jobs.append(canned.job("mine"))
    shown = arena("status", "mine")
    assert shown.code == 1
    assert "the job mine in namespace default does not train now; see `arena get mine`" in shown.err
    fake.operations += [canned.operation(progress="succeeded")]
    assert arena("resize", "mine", "--to", "4", "--no-wait").code == 0
    assert fake.asked("POST", "/jobs/default/mine/scale")


def test_members_are_added_to_a_run_and_workers_to_a_job(
    fake: FakeServer, arena: Arena, coordinator: Coordinator
) -> None:
    fake.jobs.append(canned.job("demo"))
    refused = arena("resize", "demo", "--add", "1")
    assert (refused.code, "which has workers" in refused.err) == (2, True)
    run = coordinator(RequestEnded(True, "resized"))
    assert arena("resize", "mine", "--add", "1").out == "resized\n"
    assert isinstance(run.hears(), ResizeRequested)
