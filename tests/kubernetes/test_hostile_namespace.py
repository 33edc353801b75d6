"""A namespace that does its worst beside one that has little to do."""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest

from midflight.backends import loop as loop_module
from midflight.backends.loop import Draft
from midflight.controller.state import Cluster, Job, Phase
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.operator import leader_election
from midflight.kubernetes.operator import place as place_module
from midflight.kubernetes.operator.decision import Decision
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.leader_election import LeaderElection
from midflight.kubernetes.operator.observed import Observed
from midflight.kubernetes.resources.job_spec import spec_of
from midflight.kubernetes.resources.status import Saved
from tests.kubernetes.job_objects import pytorch_job, training_job
from tests.kubernetes.jobs import NOW, pod
from tests.kubernetes.operator_in_memory import Operator, job, scale_out

HOSTILE_JOBS, SECONDS = 4, 4.0  # a holder of the lease counts on it for so long


@dataclass(frozen=True)
class Measured:
    """In seconds of the loop's own thread, so that a loaded machine measures the same."""

    took: float  # until the quiet job had its pods
    stall: float  # the longest time that nobody else had a turn
    before: int  # pods of others that were created before the quiet job had its own
    renewals: int


async def measure(hostile: int) -> Measured:
    """A quiet job beside so many large ones, and an operator that has to go on leading."""
    operator = Operator()
    operator.api.expected = hostile * 1001 + 3
    election = LeaderElection(operator.api, "ops", "operator", "one", time.thread_time)
    await election.acquire()
    keeping = asyncio.create_task(election.keep())
    watching = asyncio.create_task(longest_stall(election))
    command = "python " + "-u " * 40_000
    for number in range(hostile):
        operator.submit(job("hostile", f"large-{number}", 1000, f"{command} {number}"))
    await asyncio.sleep(0)
    began = time.thread_time()
    operator.submit(job("quiet", "small", 2, "python train.py"))
    await asyncio.wait_for(operator.api.quiet.wait(), 100)
    took, before = time.thread_time() - began, len(operator.api.created)
    await asyncio.wait_for(operator.api.all.wait(), 100)
    watching.cancel()
    stall = await watching
    keeping.cancel()
    await operator.close()
    election.permit()
    return Measured(took, stall, before, operator.api.renewals)


def test_a_job_begins_in_time_beside_a_namespace_of_large_jobs_with_long_commands(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(leader_election, "RENEW", 0.01)  # many times in what takes seconds
    alone, beside = asyncio.run(measure(0)), asyncio.run(measure(HOSTILE_JOBS))
    assert alone.took < SECONDS
    assert beside.took < SECONDS
    assert beside.before < HOSTILE_JOBS * 1000 / 4
    assert beside.stall < SECONDS
    assert beside.renewals > 2


def test_pods_with_long_commands_are_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch):
    made_by: list[threading.Thread] = []
    render = Executor._render

    def noted(*args: Any) -> Any:
        made_by.append(threading.current_thread())
        return render(*args)

    monkeypatch.setattr(Executor, "_render", noted)
    asyncio.run(measure(1))
    assert made_by
    assert threading.main_thread() not in made_by


async def turns_of_the_quiet(hostile: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Turns of the event loop until its job has its pods, and until its scale object is refused."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def at_once(work: Any, *args: Any) -> Any:
        await asyncio.sleep(0)
        return work(*args)

    monkeypatch.setattr(asyncio, "to_thread", at_once)  # how long a thread takes is no turn
    operator = Operator()
    if hostile:
        misuse(operator)
    await asyncio.sleep(0)
    operator.tasks.append(asyncio.create_task(count()))
    operator.submit(job("quiet", "small", 2, "python train.py"))
    operator.scale(scale_out("quiet", "lost", "nobody"))
    try:
        async with asyncio.timeout(100):
            await operator.api.quiet.wait()
            to_run = turns
            await operator.api.written["quiet", "lost"].wait()
        return to_run, turns
    finally:
        await operator.close()


def misuse(operator: Operator) -> None:
    """More jobs than passes at a time, thousands of scale objects, and statuses of nobody's."""
    damaged = {"conditions": [{"type": "ScaleFailed", "status": "True"}, {"type": "Scaling"}]}
    for number in range(12):
        operator.submit(job("hostile", f"large-{number}", 200, "python train.py"))
    for number in range(20):
        obj = job("hostile", f"damaged-{number}", 2, "python train.py")
        operator.submit({**obj, "status": {"midflight": {"format": 1, "version": number}}})
    for number in range(2000):
        about = "nobody" if number % 2 else f"nobody-{number}"
        operator.scale(scale_out("hostile", f"s-{number}", about, damaged))


def test_a_quiet_namespace_waits_no_longer_beside_a_hostile_one(monkeypatch: pytest.MonkeyPatch):
    alone = asyncio.run(turns_of_the_quiet(False, monkeypatch))
    beside = asyncio.run(turns_of_the_quiet(True, monkeypatch))
    assert beside[0] <= 1.5 * alone[0] + 5, "its job"
    assert beside[1] <= 1.5 * alone[1] + 5, "its scale object"


async def longest_stall(election: LeaderElection) -> float:
    """How long nobody else had a turn. Whoever leads still does after it."""
    worst = 0.0
    try:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            worst = max(worst, time.thread_time() - before)
            election.permit()
    except asyncio.CancelledError:
        return worst


def test_a_job_that_cannot_be_reconciled_can_be_deleted(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(place_module, "Decision", fail)
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.001)

    async def check() -> None:
        operator = Operator()
        obj = job("quiet", "small", 2, "python train.py")
        gone = {"deletionTimestamp": "2026-01-01T00:01:00Z", "finalizers": [names.FINALIZER]}
        obj["metadata"] |= gone
        operator.submit(obj)
        await asyncio.wait_for(operator.api.released.wait(), 10)
        await operator.close()

    asyncio.run(check())


def decided(decision: Decision, cluster: Cluster) -> Cluster:
    draft = Draft(cluster)
    for step in decision.steps:
        draft.take(step(draft.cluster, decision.observed.now))
    return draft.cluster


def test_a_pass_over_a_thousand_pods_takes_a_fraction_of_a_second():
    obj = job("a", "large", 1000, "python train.py")
    spec = spec_of(obj)
    first = Decision(Saved(Job(spec, "u", NOW, spec.workers)), spec, Observed(NOW))
    made = decided(first, Cluster(placed_elsewhere=True))
    up = {name: pod(name) for name in made.jobs[spec.key].instances}
    began = time.process_time()
    second = Decision(Saved(made.jobs[spec.key], 1, 1000), spec, Observed(NOW + 1, pods=up))
    assert decided(second, made).jobs[spec.key].phase is Phase.RUNNING
    assert time.process_time() - began < 1.0  # 2.6 s, when each pod was a pass of its own


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1001, 100_000, 999_999])
def test_no_job_has_more_workers_than_its_state_has_room_for(number: int):
    with pytest.raises(UsageError, match=r"worker.replicas is invalid: wanted at most 1000"):
        spec_of(job("a", "b", number, "python train.py"))
    with pytest.raises(UsageError, match=r"Worker.replicas is invalid: wanted at most 1000"):
        spec_of(pytorch_job(workers=number))


def test_a_larger_bound_means_the_largest_that_there_is():
    obj = training_job()
    obj["spec"]["etReplicaSpecs"]["worker"]["maxReplicas"] = 100_000
    assert spec_of(obj).most == 1000
    assert spec_of(pytorch_job(elasticPolicy={"minReplicas": 1, "maxReplicas": 5000})).most == 1000


def test_a_word_that_no_program_can_be_started_with_is_refused():
    with pytest.raises(UsageError, match=r"command\[2\] is too long: Linux takes at most 131071"):
        spec_of(job("a", "b", 1, "x" * 131_072))


def test_a_template_that_is_too_large_for_a_thousand_pods_is_refused():
    obj = training_job()
    spec = obj["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]
    spec["containers"][0]["env"] = [{"name": f"V{n}", "value": "x" * 100} for n in range(2500)]
    with pytest.raises(UsageError, match=r"worker.template is too large: wanted at most 262144"):
        spec_of(obj)
