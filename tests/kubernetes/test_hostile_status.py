"""Statuses that somebody has made up, who may write them: they concern that object alone."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from midflight.backends import loop as loop_module
from midflight.backends.loop import Loop
from midflight.backends.place import Place
from midflight.kubernetes import names
from midflight.kubernetes.operator.manager import Manager, Settings
from midflight.kubernetes.resources import status
from tests.kubernetes.job_objects import Json
from tests.kubernetes.operator_in_memory import Operator, job, scale_out

SECONDS = 30.0
DAMAGED: list[Any] = [
    [{"type": "ScaleFailed", "status": "True"}],
    [{"type": "ScaleFailed"}],
    [{"status": "True"}],
    [{"type": ["ScaleFailed"], "status": {}}, None, "ScaleFailed", 3],
    {"type": "ScaleFailed"},
    "ScaleFailed",
]


@pytest.mark.parametrize("conditions", DAMAGED)
def test_a_damaged_condition_does_not_keep_a_status_from_being_written(conditions: Any):
    shown = status.refused_status("no such job", {"conditions": conditions}, 0.0)
    mine = next(each for each in shown["conditions"] if each["type"] == "ScaleFailed")
    assert mine["lastTransitionTime"] == "1970-01-01T00:00:00Z"


async def refuse(*scalers: Json) -> Operator:
    """Until the last of them has been refused."""
    operator = Operator()
    for each in scalers:
        operator.scale(each)
    last = scalers[-1]["metadata"]["namespace"], scalers[-1]["metadata"]["name"]
    async with asyncio.timeout(SECONDS):
        await operator.api.written[last].wait()
    await operator.close()
    return operator


@pytest.mark.parametrize("conditions", DAMAGED)
def test_a_scale_object_with_a_damaged_status_stops_nobody(conditions: Any):
    hostile = scale_out("hostile", "a", "nobody", {"conditions": conditions})
    asyncio.run(refuse(hostile, scale_out("quiet", "b", "nobody")))


def test_scale_objects_without_a_job_are_looked_at_once_and_not_because_of_each_other():
    many = [scale_out("one", f"s-{number}", "nobody") for number in range(1000)]
    operator = asyncio.run(refuse(*many))
    assert sum(event.is_set() for event in operator.api.written.values()) == 1000
    assert operator.unclaimed.looks <= 2 * 1000


async def raise_versions(operator: Operator) -> None:
    """Somebody does it while the job is reconciled, and the watch is slow to tell."""
    job_key = "quiet", "small"
    for name, pod in dict(operator.cache.pods.of(job_key)).items():
        found = operator.api.objects[names.TRAININGJOB, *job_key]
        state = found["status"]["midflight"]
        changed = {**found["status"], "midflight": {**state, "version": state["version"] + 5}}
        operator.api.store({**found, "status": changed})
        operator.api.written[job_key].clear()
        operator.cache.pods.update(("quiet", name), replace(pod, phase="Running"))
        operator.loops[job_key].wake("quiet/small")  # there is something to save
        await operator.api.written[job_key].wait()


def test_a_version_that_somebody_else_has_raised_makes_the_state_of_that_job_be_read_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(loop_module, "FIRST_PAUSE", 0.001)

    async def check() -> None:
        operator = Operator()
        operator.submit(job("quiet", "small", 2, "python train.py"))
        async with asyncio.timeout(SECONDS):
            await operator.api.quiet.wait()
            tampering = asyncio.create_task(raise_versions(operator))
            tasks = {tampering, *operator.tasks}
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await operator.close()
        assert done == {tampering}, "the operator would no longer lead"

    asyncio.run(check())


def test_a_bug_in_the_loop_of_one_job_does_not_depose_the_operator():
    async def check() -> None:
        manager, made = Manager(None, Settings("one", "ops")), cast(Place, None)
        identity = (names.TRAININGJOB, "hostile", "a")

        async def fail() -> None:
            raise KeyError("lastTransitionTime")

        task = asyncio.create_task(fail())
        await asyncio.wait((task,))
        manager._tasks[identity] = task
        manager._loops[identity] = Loop(made, lambda: 0.0)
        manager._ended(identity, task)
        assert not manager._broken.done()

    asyncio.run(check())
