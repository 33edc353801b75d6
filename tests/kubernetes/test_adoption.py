"""Objects under the names of a job's own: they are taken for its own only if they are."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from midflight.errors import Exists, NotFound
from midflight.kubernetes import names
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.pods import PodDefaults, dependents
from midflight.kubernetes.pods.pod import render
from tests.kubernetes.job_objects import Json, chief_of, job_of, training_job, worker_of


class ApiServer:
    """Has all objects already, with this owner."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    async def create(self, obj: Json) -> Json:
        raise Exists(obj["metadata"]["name"])

    async def get(self, kind: str, namespace: str, name: str, api: str = "") -> Json:
        assert kind != "Secret", "the operator has no right to read it"
        owners = [{"uid": self.owner}] if self.owner else []
        return {"kind": kind, "metadata": {"name": name, "ownerReferences": owners}}


class Budgets:
    """An API server with a PodDisruptionBudget of the job, or with none."""

    def __init__(self, least: int | None, api: str = "policy/v1") -> None:
        self.least, self.api = least, api
        self.written: list[int] = []

    async def get(self, kind: str, namespace: str, name: str, api: str = "") -> Json:
        if self.least is None or api != self.api:
            raise NotFound(name)
        owners = [{"uid": training_job()["metadata"]["uid"]}]
        return {"metadata": {"ownerReferences": owners}, "spec": {"minAvailable": self.least}}

    async def patch(
        self, kind: str, namespace: str, name: str, change: Json, api: str = ""
    ) -> None:
        assert (kind, api) == ("PodDisruptionBudget", self.api)
        self.written.append(change["spec"]["minAvailable"])

    async def create(self, obj: Json) -> Json:
        self.written.append(obj["spec"]["minAvailable"])
        return obj


def budgets_after(least: int | None, *changes: Json, api: str = "policy/v1") -> list[int]:
    """What is written after each change to the job's object."""
    server: Any = Budgets(least, api)
    executor = Executor(server, PodDefaults(key=b"key"), lambda _: None, lambda o: o, time.time)
    obj = training_job()
    for change in changes:
        obj["metadata"]["annotations"] = change.get("annotations", {})
        obj["spec"]["etReplicaSpecs"]["worker"] |= change
        job = job_of(obj)
        job = replace(job, instances={i.name: i for i in (chief_of(job), worker_of(job))})
        asyncio.run(executor.carry_out(obj, job, [], dict))
    return server.written


def test_a_budget_follows_the_job_s_bounds_and_its_annotation():
    none: Json = {"annotations": {names.MIN_AVAILABLE: "0"}}
    assert budgets_after(1, {}) == []
    assert budgets_after(1, {"minReplicas": 2}, {"minReplicas": 2}, none) == [2, 0]
    assert budgets_after(1, {"minReplicas": 2}, api="policy/v1beta1") == [2]
    assert budgets_after(None, {"minReplicas": 2}) == [2]
    assert budgets_after(None, none) == []


def create(owner: str, kind: str) -> None:
    obj = training_job()
    job, api = job_of(obj), ApiServer(owner)
    untyped: Any = api
    executor = Executor(untyped, PodDefaults(key=b"key"), lambda _: None, lambda o: o, time.time)
    made = dependents.objects(obj, job, "hush", PodDefaults())
    asyncio.run(executor._create(next(each for each in made if each["kind"] == kind)))


KINDS = ("NetworkPolicy", "Role", "RoleBinding", "ServiceAccount", "Service", "ConfigMap")


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_somebody_else_has_made_is_not_taken_for_the_jobs(kind: str):
    """A NetworkPolicy that lets everybody in was silently accepted."""
    with pytest.raises(Exception, match=f"there is a {kind} elastic.* that is not this job's"):
        create("", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_the_job_owns_is_taken_up(kind: str):
    create(training_job()["metadata"]["uid"], kind)


def test_nobody_without_the_operators_key_can_make_the_secret_of_a_job_beforehand():
    """Its owner cannot be asked for, so a Secret of that name was silently accepted."""
    obj = training_job()
    job, found = job_of(obj), set()
    for key in (b"", b"one", b"another"):
        defaults = PodDefaults(key=key)
        made = dependents.objects(obj, job, "hush", defaults)
        [name] = (each["metadata"]["name"] for each in made if each["kind"] == "Secret")
        for instance in (chief_of(job), worker_of(job)):
            volumes = render(obj, job, instance, defaults)["spec"]["volumes"]
            assert name in [each.get("secret", {}).get("secretName") for each in volumes]
        assert job.uid[:8] not in name
        found.add(name)
    assert len(found) == 3
