"""Objects under the names of a job's own: they are taken for its own only if they are."""

import asyncio
import time
from typing import Any

import pytest

from midflight.errors import Exists
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
